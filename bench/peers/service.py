"""The script behind HTTP: FastAPI, a JWT for each request, paths inside the roots; run by uvicorn with two workers."""

import json
import os

import jwt
from fastapi import FastAPI, Header, HTTPException
from fastapi.responses import Response
from pydantic import BaseModel

import work

KEY = bytes.fromhex(os.environ["PEER_KEY"])
ROOTS = {side: os.path.realpath(os.environ[f"PEER_{side.upper()}"]) for side in ("input", "output")}

app = FastAPI(openapi_url=None)


class Asked(BaseModel):
    input_image_path: str
    output_folder_path: str


def inside(path, side):
    real = os.path.realpath(path)
    if not real.startswith(ROOTS[side] + os.sep):
        raise HTTPException(403, f"The {side} path lies outside the roots.")
    return real


@app.get("/health/ready")
async def ready():
    return {"status": "ready"}


@app.post("/single_inference")
async def single_inference(asked: Asked, authorization: str = Header()):
    # The work is done on the event loop: with a process for each core this is the fastest, and threads would only take turns.
    try:
        jwt.decode(authorization, KEY, algorithms=["HS256"])
    except jwt.InvalidTokenError:
        raise HTTPException(401, "Invalid token") from None
    receipt = work.infer(inside(asked.input_image_path, "input"), inside(asked.output_folder_path, "output"))
    return Response(json.dumps(receipt), media_type="application/json")

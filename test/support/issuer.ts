/** Somebody who signs people in, as far as a server sees it: keys at an address, and tokens. */
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import jwt from "jsonwebtoken";
import type { Test } from "tap";
import { withDurations } from "./durations.js";
import { httpPeer } from "./http-peer.js";
import { makePlace, type Place } from "./server.js";

export interface IssuerKey {
  kid: string;
  algorithm: "RS256" | "ES256";
  secret: KeyObject;
  /** In PEM. */
  shown: string;
  jwk: object;
}

export function issuerKey(kid: string, algorithm: IssuerKey["algorithm"] = "RS256"): IssuerKey {
  const { privateKey, publicKey } =
    algorithm === "RS256"
      ? generateKeyPairSync("rsa", { modulusLength: 2048 })
      : generateKeyPairSync("ec", { namedCurve: "P-256" });
  return {
    kid,
    algorithm,
    secret: privateKey,
    shown: publicKey.export({ type: "spki", format: "pem" }).toString(),
    jwk: { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: algorithm },
  };
}

export const HEADER = "X-Radserve-Id-Token";
export const AUDIENCE = "radserve-page";
export const ORIGIN = "https://radserve.hospital.example";

export interface Issuer {
  url: string;
  /** What is shown at its address; an answer of another status where it is a number. */
  shows: IssuerKey[] | number | "silence";
  /** How often somebody asked. */
  asked: number;
  /** A token of a person with a role, valid for an hour. */
  token(key: IssuerKey, more?: object, header?: object): string;
}

export async function startIssuer(t: Test, ...keys: IssuerKey[]): Promise<Issuer> {
  const { url } = await httpPeer(t, (_, response) => {
    issuer.asked += 1;
    const { shows } = issuer;
    if (shows === "silence") return;
    if (typeof shows === "number") response.writeHead(shows).end();
    else response.end(JSON.stringify({ keys: shows.map(({ jwk }) => jwk) }));
  });
  const issuer: Issuer = {
    url,
    shows: keys,
    asked: 0,
    token: ({ secret, algorithm, kid }, more = {}, header = {}) => {
      const now = Math.floor(Date.now() / 1000);
      const claims: Record<string, unknown> = {
        iss: url,
        aud: AUDIENCE,
        sub: "alice",
        exp: now + 3600,
        groups: ["readers"],
      };
      const whole = Object.entries({ ...claims, ...more }).filter(([, one]) => one !== undefined);
      return jwt.sign(Object.fromEntries(whole), secret, {
        algorithm,
        header: { alg: algorithm, kid, ...header },
      });
    },
  };
  return issuer;
}

/** The issuer is this process, or one beside it, and either may stand still for seconds. */
export const PATIENT = { signInAnswer: 60_000 };

/** A file of sign-in, and the settings that go with it. */
export function signInPlace(
  issuer: Issuer,
  more: object = {},
  extra: Record<string, string> = {},
): Place {
  const place = makePlace({
    RADSERVE_TRUSTED_PROXIES: "127.0.0.2",
    ...withDurations(PATIENT),
    ...extra,
  });
  const file = path.join(place.directory, "sign-in.json");
  place.environment["RADSERVE_SIGN_IN"] = file;
  writeSignIn(place, issuer, more);
  return place;
}

/** Writes the file of a place again. */
export function writeSignIn(place: Place, issuer: Issuer, more: object = {}): void {
  const settings = {
    header: HEADER,
    issuer: issuer.url,
    audience: AUDIENCE,
    jwks: `${issuer.url}/jwks`,
    origin: ORIGIN,
    roles: [{ role: "readers" }],
    sign_out: "/oauth2/sign_out",
    ...more,
  };
  writeFileSync(path.join(place.directory, "sign-in.json"), JSON.stringify(settings));
}

"""DenseNet-121 in PyTorch with a CUDA graph, channels last, whole batches in and out: what bench/gpu.sh prints beside
Radserve where python3 has torch. One line for each type and batch: `float16 32 6167.1` is images a second."""

import time

import torch
from torch import nn

BATCHES = (1, 16, 32, 64, 128)
SECONDS = 1.0


class Layer(nn.Module):
    """Batch normalisation, 1 x 1, batch normalisation, 3 x 3; its 32 channels join what went in."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(inplace=True),
            nn.Conv2d(128, 32, 3, padding=1, bias=False),
        )

    def forward(self, x):
        return torch.cat((x, self.body(x)), 1)


def densenet121():
    parts = [
        nn.Conv2d(1, 64, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, stride=2, padding=1),
    ]
    channels = 64
    for block, layers in enumerate((6, 12, 24, 16)):
        for _ in range(layers):
            parts.append(Layer(channels))
            channels += 32
        if block < 3:
            parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
            parts += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    parts += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(channels, 18))


def rate(model, dtype, batch):
    host = torch.rand(batch, 1, 224, 224, dtype=dtype).pin_memory()
    given = torch.zeros(batch, 1, 224, 224, dtype=dtype, device="cuda").to(memory_format=torch.channels_last)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(given)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = model(given)
    back = torch.zeros(found.shape, dtype=dtype).pin_memory()
    runs = 0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        given.copy_(host, non_blocking=True)
        graph.replay()
        back.copy_(found, non_blocking=True)
        torch.cuda.synchronize()
        runs += 1
    return runs * batch / (time.perf_counter() - began)


def main():
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for name, dtype in (("float32", torch.float32), ("float16", torch.float16)):
        model = densenet121().eval().to("cuda", dtype).to(memory_format=torch.channels_last)
        with torch.inference_mode():
            for batch in BATCHES:
                print(name, batch, f"{rate(model, dtype, batch):.1f}", flush=True)


if __name__ == "__main__":
    main()

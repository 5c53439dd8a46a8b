# Two stages. The first, `build`, runs on the building machine's own architecture whatever the target is: it unpacks wheels for the target without
# executing them and cross-compiles the C programs. The second adds one layer to the base image and runs nothing, so no emulator is needed.
# Every wheel is checked by its hash. Debian's packages, of which the image has busybox, are those that apt has on the day of the build, and apt checks
# Debian's signature. For a base image that cannot change, give its digest, which the engine checks:
#   --build-arg BASE_DIGEST=sha256:...   (of the image's index, which lists all architectures)
ARG PYTHON=3.13
ARG BASE_DIGEST=

FROM --platform=${BUILDPLATFORM} python:${PYTHON}-slim${BASE_DIGEST:+@${BASE_DIGEST}} AS build
ARG TARGETARCH
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ONLY_BINARY=:all: PIP_QUIET=1
WORKDIR /src
COPY driver/image/target driver/image/
RUN apt-get update && apt-get install -y --no-install-recommends $(driver/image/target "${TARGETARCH}" packages)
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
# The wheels of the target; the build back end among them is pure Python, so this machine can run it too.
RUN pip download --no-deps $(driver/image/target "${TARGETARCH}" wheels) --dest /wheels \
        --require-hashes --requirement requirements/image.txt \
    && pip install --no-index --find-links /wheels hatchling
COPY driver driver
# The probe is what the pod's probes run: the command line itself would cost a second of processor time each.
RUN export CC="$(driver/image/target "${TARGETARCH}" compiler)" \
    && mkdir -p /image/usr/local/bin \
    && driver/attach/build /image/usr/local/bin/drakit-probe probe \
    && driver/attach/build driver/drakit_nic/attach/client
# udhcpc for NicConfig.dhcp: busybox is the program by whose name it is called.
RUN arch="$(driver/image/target "${TARGETARCH}" architecture)" && dpkg --add-architecture "$arch" && apt-get update \
    && cd /tmp && apt-get download "busybox-static:$arch" && dpkg-deb --extract busybox-static_*.deb busybox \
    && install -m 755 "$(find busybox -path '*bin/busybox' -type f)" /image/usr/local/bin/udhcpc
RUN pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . driver/drakit_gpu driver/drakit_nic \
    && pip install --no-index --find-links /wheels $(driver/image/target "${TARGETARCH}" wheels) \
        --no-compile --target /site "drakit[gpu,nic]" \
    && python driver/image/assemble.py /site /image

FROM python:${PYTHON}-slim${BASE_DIGEST:+@${BASE_DIGEST}}
ARG PYTHON
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="drakit" \
      org.opencontainers.image.description="Kubernetes Dynamic Resource Allocation node driver for GPUs and NICs" \
      org.opencontainers.image.base.name="docker.io/library/python:${PYTHON}-slim" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
# The kubelet's directories belong to root, and so does the driver; the DaemonSet takes every capability away.
USER 0:0
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["drakit"]
CMD ["run"]

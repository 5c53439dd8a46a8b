# Two stages: the first builds wheels, the second installs them and holds neither compiler nor pip cache nor the local cluster.
# Every file of a dependency is checked by its hash. For a base image that cannot change, give its digest, which the engine checks:
#   --build-arg BASE_DIGEST=sha256:...
ARG PYTHON=3.13
ARG BASE_DIGEST

FROM python:${PYTHON}-slim${BASE_DIGEST:+@${BASE_DIGEST}} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
COPY driver ./driver
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* \
    && driver/attach/build /drakit-probe probe \
    && driver/attach/build driver/drakit/devices/nic/attach/client
RUN pip wheel --no-cache-dir --wheel-dir /wheels --only-binary :all: --require-hashes --requirement requirements/image.txt \
    && pip install --no-cache-dir --no-index --find-links /wheels hatchling \
    && pip wheel --no-cache-dir --wheel-dir /wheels --no-deps --no-build-isolation .

FROM python:${PYTHON}-slim${BASE_DIGEST:+@${BASE_DIGEST}}
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "drakit[gpu,nic]"
# What the pod's probes run: the command line itself would cost a second of processor time each.
COPY --from=build /drakit-probe /usr/local/bin/drakit-probe
# The kubelet's directories belong to root, and so does the driver; the DaemonSet takes every capability away.
USER 0:0
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["drakit"]
CMD ["run"]

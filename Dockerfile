# Two stages: the first builds wheels, the second installs them and holds neither compiler nor pip cache nor the local cluster.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY driver ./driver
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* \
    && driver/attach/build driver/drakit/devices/nic/attach/client
RUN pip wheel --no-cache-dir --wheel-dir /wheels --constraint constraints.txt ".[gpu,nic]"

FROM python:${PYTHON}-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "drakit[gpu,nic]"
# The kubelet's directories belong to root, and so does the driver; the DaemonSet takes every capability away.
USER 0:0
ENV PYTHONUNBUFFERED=1
ENTRYPOINT ["drakit"]
CMD ["run"]

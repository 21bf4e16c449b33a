# syntax=docker/dockerfile:1
# One image for both programs: `controller run` and `agent run`. docs/install.md says how to build it and pin its base.
ARG PYTHON_IMAGE=docker.io/library/python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# Of the extras of pyproject.toml, with commas: postgres for a history in PostgreSQL, aws, gcp, azure, oracle for repairs.
ARG EXTRAS=""
# The environment gets no pip of its own, and the wheel is all of the source that it gets.
RUN python -m pip wheel --no-deps --wheel-dir dist . \
 && python -m venv --without-pip /opt/muster \
 && python -m pip --python /opt/muster/bin/python install --only-binary=:all: -c constraints.txt \
    "$(echo dist/*.whl)${EXTRAS:+[$EXTRAS]}"
# The test programs as one file: workers copy it into whatever image has PyTorch.
RUN mkdir /opt/muster/share \
 && /opt/muster/bin/python -c "import pathlib, muster.workloads.archive as a; a.build_pyz(pathlib.Path('/opt/muster/share/muster-workloads.pyz'))"

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0.dev0
LABEL org.opencontainers.image.title="muster" \
      org.opencontainers.image.description="Keeps GPU Kubernetes clusters fit for work" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/muster/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY --from=build /opt/muster /opt/muster
# By number, so that Kubernetes can see that it is not root. The agent's pod asks for root, see the chart.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/opt/muster/bin/muster"]
CMD ["--help"]

# Two images: `edge` (consumer, API, commands; no torch) and `engine` (the model as well).
#   docker build --target edge -t stream-engine:edge .
#   docker build --target engine -t stream-engine:engine --build-arg TORCH_BACKEND=cpu .
FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --uid 10001 --create-home stream && install -d -o stream -g stream -m 0770 /board /state \
    && pip install --no-cache-dir "uv>=0.9"
WORKDIR /app
# Dependencies before the source: a change of the source does not install them again.
COPY pyproject.toml requirements.lock ./

FROM base AS edge
RUN uv pip install --system --no-cache --compile-bytecode --constraint requirements.lock --extra demo -r pyproject.toml
COPY . .
RUN uv pip install --system --no-cache --compile-bytecode --no-deps .
USER stream
EXPOSE 8080
ENTRYPOINT ["stream-engine"]
CMD ["serve", "api"]

FROM base AS engine
# `cpu` is torch's small build, `cu130` and the like others; empty takes the package index's own.
ARG TORCH_BACKEND=cpu
RUN uv pip install --system --no-cache --compile-bytecode ${TORCH_BACKEND:+--torch-backend "${TORCH_BACKEND}"} --extra engine \
    --constraint requirements.lock -r pyproject.toml
COPY . .
RUN uv pip install --system --no-cache --compile-bytecode --no-deps .
USER stream
EXPOSE 7601 7602
ENTRYPOINT ["stream-engine"]
CMD ["serve", "engine"]

# regard serve with its built-in models, on a CPU, as a user without rights:
#
#   docker build -t regard --build-arg TORCH_INDEX_URL=INDEX .
#   docker run --rm -p 8000:8000 -v "$PWD/keys:/run/secrets/regard-api-keys:ro" regard
#
# INDEX is the index of torch's CPU builds (0.2 GB), which pytorch.org names; without it pip takes the package index, whose
# torch for Linux has CUDA (3 GB). docs/serving.md has the rest.
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
ENV PATH=/opt/regard/bin:$PATH
WORKDIR /src
COPY requirements requirements
# What the list has with hashes and nothing else; then torch, whose file depends on the index.
RUN python -m venv /opt/regard \
    && pip install --no-cache-dir --require-hashes --no-deps -r requirements/run.txt
ARG TORCH_INDEX_URL
RUN pip install --no-cache-dir -c requirements/cpu-torch.txt ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch
COPY . .
# The wheels hold the built-in models. Without a connection to npm they are built without the studio's page.
RUN pip install --no-cache-dir --no-build-isolation -c requirements/cpu-torch.txt . ./packages/models \
    && regard --version

FROM python:${PYTHON_VERSION}-slim
RUN useradd --system --create-home --home-dir /home/regard --uid 10001 regard
COPY --from=build /opt/regard /opt/regard
# The models are inside: nothing is fetched while the server runs.
ENV PATH=/opt/regard/bin:$PATH \
    HF_HUB_OFFLINE=1 \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/regard
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0", "--port", "8000", "--api-key-file", "/run/secrets/regard-api-keys"]
CMD ["regard-embed", "regard-gpt", "regard-spam"]

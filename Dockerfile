# From a bundle (scripts/bundle.sh), which brings everything but CUDA's libraries: the base image has cuBLASLt and NCCL.
#
#   scripts/bundle.sh && docker build -t tutti . && docker run --gpus all -p 8000:8000 -v /models:/models tutti serve /models/M --host 0.0.0.0
FROM docker.io/nvidia/cuda:13.0.0-runtime-ubuntu22.04
COPY bundle/tutti /opt/tutti
# The cluster token and the choice of kernels, for whichever user the container runs as; a volume here keeps them.
RUN mkdir -m 1777 /var/lib/tutti
ENV PATH=/opt/tutti:$PATH TUTTI_HOME=/var/lib/tutti
EXPOSE 8000 29500
ENTRYPOINT ["tutti"]
CMD ["--help"]

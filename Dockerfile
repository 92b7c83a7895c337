# From a bundle (scripts/bundle.sh), which brings everything but CUDA's libraries: the base image has cuBLASLt and NCCL.
#
#   scripts/bundle.sh && docker build -t tutti . && docker run --gpus all -p 8000:8000 -v /models:/models tutti serve /models/M --host 0.0.0.0
FROM nvidia/cuda:13.0.0-runtime-ubuntu22.04
COPY bundle/tutti /opt/tutti
ENV PATH=/opt/tutti:$PATH
EXPOSE 8000 29500
ENTRYPOINT ["tutti"]
CMD ["--help"]

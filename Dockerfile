# An image with nothing but the program and the public certificate authorities, which run as a user without a name:
# docker build --build-arg VERSION=1.2.3 -t mailstead .
ARG GO_IMAGE=docker.io/library/golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -tags urfave_cli_no_docs -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /out/mailstead . \
	&& mkdir -m 0700 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/mailstead /mailstead
COPY --from=build --chown=65532:65532 /out/data /data
ENV MAILSTEAD_DATA=/data
VOLUME /data
EXPOSE 25 53/tcp 53/udp 80 143 443 465 587 993
STOPSIGNAL SIGTERM
USER 65532:65532
ENTRYPOINT ["/mailstead"]
CMD ["serve"]

// Package otlp sends spans to an OpenTelemetry collector, using OTLP over HTTP with protobuf. It is
// configured by these environment variables:
//
//	OTEL_EXPORTER_OTLP_ENDPOINT             /v1/traces is appended; default http://localhost:4318
//	OTEL_EXPORTER_OTLP_TRACES_ENDPOINT      used unchanged
//	OTEL_EXPORTER_OTLP[_TRACES]_HEADERS     name=value, separated by commas, percent-encoded
//	OTEL_EXPORTER_OTLP[_TRACES]_TIMEOUT     milliseconds; default 10,000
//	OTEL_EXPORTER_OTLP[_TRACES]_COMPRESSION gzip or none
//	OTEL_EXPORTER_OTLP[_TRACES]_CERTIFICATE PEM file of the trusted authorities
//	OTEL_EXPORTER_OTLP[_TRACES]_PROTOCOL    http/protobuf, the only supported protocol
//	OTEL_TRACES_EXPORTER                    otlp or none
//	OTEL_SDK_DISABLED                       true: send nothing
//
// Package otlp replaces the SDK's otlptracehttp, which links all of gRPC and adds 5.6 MB to the
// binary. This package and the rest of the SDK add 1.8 MB. Package otlp is only the transport; the
// SDK encodes the spans.
package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rollout-rl/rollout/collector/wait"
)

const (
	defaultEndpoint = "http://localhost:4318"
	tracesPath      = "v1/traces"
	defaultTimeout  = 10 * time.Second

	// An upload that is rejected is retried until it times out. The pause before a retry doubles
	// from firstPause to maxPause.
	firstPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second
	// maxAnswer is the maximum number of bytes of a response body that are read and discarded.
	maxAnswer = 64 << 10
)

// A Client uploads spans. It implements otlptrace.Client. It does not start goroutines.
type Client struct {
	url     string
	headers http.Header // can contain secrets
	timeout time.Duration
	gzip    bool
	http    *http.Client
	failed  func(error)
}

// FromEnv returns the client that the environment configures, or nil if it configures none. When
// the client gives up an upload, it calls failed with the error. The error contains neither the
// address nor headers, because the address and headers can contain secrets. failed must not block.
func FromEnv(getenv func(string) string, failed func(error)) (*Client, error) {
	env := func(name string) string {
		if v := getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
			return v
		}
		return getenv("OTEL_EXPORTER_OTLP_" + name)
	}
	exporter := strings.TrimSpace(getenv("OTEL_TRACES_EXPORTER"))
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return nil, nil
	case exporter == "" && env("ENDPOINT") == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported (want otlp or none)", exporter)
	}
	c := &Client{timeout: defaultTimeout, headers: http.Header{}, failed: failed}
	if p := env("PROTOCOL"); p != "" && p != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not supported (want http/protobuf, which OpenTelemetry collectors accept on port 4318)", p)
	}
	var errs []error
	var err error
	if c.url, err = endpoint(getenv); err != nil {
		errs = append(errs, err)
	}
	if err := readHeaders(env("HEADERS"), c.headers); err != nil {
		errs = append(errs, err)
	}
	if v := env("TIMEOUT"); v != "" {
		ms, err := strconv.ParseInt(v, 10, 32)
		if err != nil || ms <= 0 {
			errs = append(errs, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is not a valid timeout (want a number of milliseconds above 0)", v))
		}
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	switch v := env("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		c.gzip = true
	default:
		errs = append(errs, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %q is not supported (want gzip or none)", v))
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	if name := env("CERTIFICATE"); name != "" {
		pool, err := readAuthorities(name)
		if err != nil {
			errs = append(errs, err)
		}
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	c.http = &http.Client{
		Transport: transport,
		// A redirect would send the headers to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// endpoint returns the URL of the OpenTelemetry collector. Its errors omit the URL, because it can
// contain a password.
func endpoint(getenv func(string) string) (string, error) {
	name, text := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	whole := text != ""
	if !whole {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	u, err := url.Parse(cmp.Or(text, defaultEndpoint))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%s is not a URL (want a URL such as %s)", name, defaultEndpoint)
	}
	if !whole {
		u = u.JoinPath(tracesPath)
	}
	return u.String(), nil
}

func readHeaders(list string, into http.Header) error {
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || name == "" || err != nil {
			return errors.New("OTEL_EXPORTER_OTLP_HEADERS: not a list of headers (want name=value pairs, percent-encoded and separated by commas)")
		}
		into.Set(name, value)
	}
	return nil
}

func readAuthorities(name string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s contains no PEM certificate", name)
	}
	return pool, nil
}

// Start implements otlptrace.Client. It does nothing.
func (c *Client) Start(context.Context) error { return nil }

// Stop closes idle connections.
func (c *Client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans. It passes errors to failed instead of returning them, because an error
// must not end a run.
func (c *Client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	if len(spans) == 0 {
		return nil
	}
	if err := c.upload(ctx, spans); err != nil && c.failed != nil {
		c.failed(err)
	}
	return nil
}

func (c *Client) upload(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// On the wire, TracesData is identical to ExportTraceServiceRequest. TracesData is used because
	// the package of ExportTraceServiceRequest imports gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	if c.gzip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, werr := w.Write(body)
		if err := errors.Join(werr, w.Close()); err != nil {
			return err
		}
		body = b.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	pause := firstPause
	for {
		delay, err := c.post(ctx, body)
		if err == nil || delay < 0 || !wait.For(ctx, max(delay, pause)) {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// post sends one request. The result wait is the minimum pause before a retry. If wait is negative,
// the request must not be retried.
func (c *Client) post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("invalid request")
	}
	maps.Copy(req.Header, c.headers)
	req.Header.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the inner error does not contain the address
		}
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // read only
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // 0 if the header is missing
		wait = time.Duration(max(0, seconds)) * time.Second
	default:
		wait = -1
	}
	if resp.StatusCode/100 == 2 {
		return wait, nil
	}
	return wait, fmt.Errorf("the OpenTelemetry collector answered with status %d", resp.StatusCode)
}

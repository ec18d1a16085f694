package show

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/otlp"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
)

// flushTimeout is the maximum time that a run spends on sending the last spans when it ends.
const flushTimeout = 5 * time.Second

// Tracing creates the spans of a run:
//
//	rollout.sample             task, sample index, key
//	  └─ rollout.attempt       number, kind, endpoint; the class of its error
//	       └─ create agent     an HTTP request and its status, named as in package letta
//	       └─ invoke_agent     a send
//
// Tracing sends the trace context to the server in the headers traceparent and tracestate. The
// attributes of the spans contain no prompts, answers or error messages. A nil *Tracing does not
// create spans.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	headers  propagation.TraceContext
}

// NewTracing returns nil if the environment does not configure tracing. If spans are lost, the
// Tracing calls the function say once.
func NewTracing(getenv func(string) string, say func(format string, args ...any)) (*Tracing, error) {
	var once sync.Once
	client, err := otlp.FromEnv(getenv, func(err error) {
		once.Do(func() { say("spans are lost: %v", err) })
	})
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	if client == nil {
		return nil, nil
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(otlptrace.NewUnstarted(client)), // a full queue drops spans instead of blocking
		sdktrace.WithResource(resourceOf(getenv)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/rollout-rl/rollout")}, nil
}

func resourceOf(getenv func(string) string) *resource.Resource {
	name := getenv("OTEL_SERVICE_NAME")
	attrs := []attribute.KeyValue{attribute.String("service.version", version.Read().Version)}
	for pair := range strings.SplitSeq(getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if value, err := url.PathUnescape(value); ok && err == nil && key != "" {
			if key == "service.name" && name == "" {
				name = value
				continue
			}
			attrs = append(attrs, attribute.String(key, value))
		}
	}
	name = cmp.Or(name, "rollout")
	return resource.NewSchemaless(append(attrs, attribute.String("service.name", name))...)
}

// Stop sends the remaining spans and ends tracing.
func (t *Tracing) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // lost spans have already been reported through say
}

// Events adds spans to the collector's events.
func (t *Tracing) Events(e collector.Events) collector.Events {
	if t == nil {
		return e
	}
	e.SampleSpan = func(ctx context.Context, a collector.Attempt, endpoint string) (context.Context, func(error)) {
		return t.start(ctx, "rollout.sample", endpoint,
			attribute.String("rollout.run_id", a.RunID),
			attribute.String("rollout.sample_key", a.Key),
			attribute.String("rollout.task_id", a.Task.ID),
			attribute.Int("rollout.sample_index", a.Index),
			attribute.Int("rollout.group_size", a.GroupSize))
	}
	e.AttemptSpan = func(ctx context.Context, a collector.Attempt, endpoint string) (context.Context, func(error)) {
		return t.start(ctx, "rollout.attempt", endpoint,
			attribute.String("rollout.sample_key", a.Key),
			attribute.Int("rollout.attempt", a.N),
			attribute.String("rollout.attempt.kind", a.Kind.String()))
	}
	return e
}

// start starts a span. The returned function ends the span and records the class of the error.
func (t *Tracing) start(ctx context.Context, name, endpoint string, attrs ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(append(attrs, attribute.String("rollout.endpoint", endpoint))...))
	return ctx, func(err error) {
		if err != nil {
			fail(span, collector.Classify(err).String())
		}
		span.End()
	}
}

func fail(span trace.Span, class string) {
	span.SetAttributes(attribute.String("error.type", class))
	span.SetStatus(codes.Error, class)
}

// Watch makes the client's observer create a span for each request of an attempt.
func (t *Tracing) Watch(endpoint string, cfg *letta.ClientConfig) {
	if t == nil {
		return
	}
	host := ""
	if u, err := url.Parse(endpoint); err == nil {
		host = u.Host
	}
	observe := cfg.Observe
	cfg.Observe = func(ctx context.Context, op, method string) (context.Context, func(letta.Exchange)) {
		var end func(letta.Exchange)
		if observe != nil {
			ctx, end = observe(ctx, op, method)
		}
		if !trace.SpanContextFromContext(ctx).IsValid() {
			return ctx, end // the request belongs to the run itself, not to an attempt
		}
		name := op
		attrs := []attribute.KeyValue{attribute.String("http.request.method", method), attribute.String("server.address", host)}
		if op == "send" {
			name = "invoke_agent"
			attrs = append(attrs, attribute.String("gen_ai.operation.name", name))
		}
		ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
		return ctx, func(e letta.Exchange) {
			if e.Code != 0 {
				span.SetAttributes(attribute.Int("http.response.status_code", e.Code))
			}
			span.SetAttributes(attribute.Int64("http.response.body.size", e.Bytes))
			switch {
			case e.Code >= http.StatusBadRequest:
				fail(span, strconv.Itoa(e.Code))
			case e.Err != nil:
				fail(span, collector.Classify(agent.Translate(e.Err)).String())
			}
			span.End()
			if end != nil {
				end(e)
			}
		}
	}
	cfg.Inject = func(ctx context.Context, h http.Header) {
		t.headers.Inject(ctx, propagation.HeaderCarrier(h))
	}
}

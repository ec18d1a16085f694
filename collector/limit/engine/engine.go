// Package engine reads the load of an inference engine from its metrics, for package limit.
//
// It supports the metric names of two engines. If a metric has several series, on one page or on
// several pages, the highest cache usage counts. Queues and preemptions are summed.
//
//	                SGLang (--enable-metrics)            vLLM
//	KV cache used   sglang:token_usage                   vllm:kv_cache_usage_perc, vllm:gpu_cache_usage_perc
//	queue           sglang:num_queue_reqs                vllm:num_requests_waiting
//	preemptions     sglang:num_retracted_requests_total  vllm:num_preemptions_total
//	                sglang:num_retracted_reqs
//
// The last SGLang metric is a gauge in older versions. It contains the number of requests that were
// just retracted. A Poller adds up the values of this gauge.
package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rollout-rl/rollout/collector/limit"
)

// Config configures a Poller.
type Config struct {
	// URLs are the addresses of metrics pages in the Prometheus text format. At least one is
	// required.
	URLs []string
	// Every is the interval between polls, and the time limit of one poll. Default 5s.
	Every time.Duration
	// Client makes the requests. Default: a new client.
	Client *http.Client
}

// A Poller polls the metrics of engines.
type Poller struct {
	cfg     Config
	retired []float64 // sum of the values of the gauge, by page
}

// New returns a Poller. New does not start any goroutine.
func New(cfg Config) (*Poller, error) {
	var errs []error
	if len(cfg.URLs) == 0 {
		errs = append(errs, errors.New("engine metrics: no URL"))
	}
	for i, text := range cfg.URLs {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("engine metrics: URL %d is invalid (want http://host:30000/metrics)", i+1))
		}
	}
	if cfg.Every < 0 {
		errs = append(errs, fmt.Errorf("engine metrics: poll interval %v: must not be negative", cfg.Every))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cfg.Every = cmp.Or(cfg.Every, 5*time.Second)
	cfg.Client = cmp.Or(cfg.Client, &http.Client{})
	return &Poller{cfg: cfg, retired: make([]float64, len(cfg.URLs))}, nil
}

// Run polls until ctx is done, and then returns nil. It calls the function seen after every
// successful poll, and the function failed after every failed poll. Both functions are allowed to
// block.
func (p *Poller) Run(ctx context.Context, seen func(limit.Engine), failed func(error)) error {
	tick := time.NewTicker(p.cfg.Every)
	defer tick.Stop()
	for {
		e, err := p.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failed(err)
		default:
			seen(e)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Look polls all pages once. It must not be called during Run.
func (p *Poller) Look(ctx context.Context) (limit.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Every)
	defer cancel()
	all := limit.Engine{KVUsage: -1, Waiting: -1, Preemptions: -1}
	for i, page := range p.cfg.URLs {
		one, err := p.page(ctx, i, page)
		if err != nil {
			return limit.Engine{}, fmt.Errorf("engine metrics: %s: %w", pageName(page), err)
		}
		all.KVUsage = max(all.KVUsage, one.KVUsage)
		all.Waiting = plus(all.Waiting, one.Waiting)
		all.Preemptions = plus(all.Preemptions, one.Preemptions)
	}
	return all, nil
}

// The function plus adds two numbers. A negative number means unknown.
func plus(a, b float64) float64 {
	switch {
	case a < 0:
		return b
	case b < 0:
		return a
	}
	return a + b
}

// pageName returns the URL of a page for error messages, without user information and query.
func pageName(page string) string {
	u, err := url.Parse(page)
	if err != nil {
		return "?"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// maxPageBytes bounds the size of a page. Real pages are a few hundred kilobytes long.
const maxPageBytes = 16 << 20

func (p *Poller) page(ctx context.Context, i int, page string) (limit.Engine, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return limit.Engine{}, errors.New("invalid URL")
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := p.cfg.Client.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // the rest of the text repeats the address
		}
		return limit.Engine{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return limit.Engine{}, fmt.Errorf("status %d", resp.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxPageBytes))
	if err != nil {
		return limit.Engine{}, fmt.Errorf("the page is not in the Prometheus text format: %w", err)
	}
	return p.read(i, families)
}

func (p *Poller) read(i int, families map[string]*dto.MetricFamily) (limit.Engine, error) {
	e := limit.Engine{
		KVUsage:     first(families, math.Max, "sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
		Waiting:     first(families, plus, "sglang:num_queue_reqs", "vllm:num_requests_waiting"),
		Preemptions: first(families, plus, "sglang:num_retracted_requests_total", "vllm:num_preemptions_total"),
	}
	if e.Preemptions < 0 {
		if now := first(families, plus, "sglang:num_retracted_reqs"); now >= 0 {
			p.retired[i] += now
			e.Preemptions = p.retired[i]
		}
	}
	if e.KVUsage < 0 && e.Waiting < 0 && e.Preemptions < 0 {
		return e, errors.New("no SGLang or vLLM metric found; SGLang needs --enable-metrics")
	}
	return e, nil
}

// The function first combines the values of the first metric family that has a valid value. It
// returns -1 if no family has a valid value.
func first(families map[string]*dto.MetricFamily, join func(a, b float64) float64, names ...string) float64 {
	for _, name := range names {
		all := -1.0
		for _, m := range families[name].GetMetric() {
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() // a metric has only one of these types
			if v >= 0 && !math.IsInf(v, 0) {
				all = join(all, v)
			}
		}
		if all >= 0 {
			return all
		}
	}
	return -1
}

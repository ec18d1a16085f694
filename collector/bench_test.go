package collector_test

import (
	"context"
	"encoding/json"
	"math"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/sink/sinktest"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// These benchmarks measure the path in memory, from the bytes of a reply to a committed Parquet
// shard: decode, prompts, align, check, count, encode. BenchmarkCollect of package agent adds HTTP
// and the messages of replies.

// A bodies backend answers each attempt with the next of its bodies.
type bodies struct {
	all     [][]byte
	decode  func(m *machine, body []byte) ([]tokenize.Turn, []byte, error)
	prompts promptsFunc

	mu   sync.Mutex
	next int
	free []*machine
}

// A machine is the decoder memory of one agent.
type machine struct {
	b       *bodies
	body    []byte
	decoder *tokenize.Decoder
	reply   tokenize.Reply
	out     collector.Reply
	send    [1]collector.Send
}

func (b *bodies) Open(context.Context, collector.Attempt) (collector.Agent, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var m *machine
	if n := len(b.free); n > 0 {
		m, b.free = b.free[n-1], b.free[:n-1]
	} else {
		m = &machine{b: b, decoder: tokenize.NewDecoder(tokenize.DecoderConfig{})}
	}
	m.body = b.all[b.next%len(b.all)]
	b.next++
	return m, nil
}

func (m *machine) ID() string { return "agent-bench" }

func (m *machine) Run(context.Context) (*collector.Reply, error) {
	turns, rest, err := m.b.decode(m, m.body)
	if err != nil {
		return nil, err
	}
	var small struct {
		StopReason struct {
			StopReason string `json:"stop_reason"`
		} `json:"stop_reason"`
		Usage struct {
			PromptTokens     int64 `json:"prompt_tokens"`
			CompletionTokens int64 `json:"completion_tokens"`
			StepCount        int32 `json:"step_count"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(rest, &small); err != nil {
		return nil, err
	}
	m.send[0] = collector.Send{
		Turns: turns, RunID: "run-1", StopReason: small.StopReason.StopReason,
		Usage: collector.Usage{PromptTokens: small.Usage.PromptTokens, CompletionTokens: small.Usage.CompletionTokens, Steps: small.Usage.StepCount},
	}
	m.out = collector.Reply{AgentID: "agent-1", Model: "test/model", Sends: m.send[:]}
	return &m.out, nil
}

func (m *machine) Prompts(ctx context.Context, r *collector.Reply) ([]tokenize.Call, error) {
	return m.b.prompts(ctx, r)
}

func (m *machine) Close(context.Context) error {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	m.b.free = append(m.b.free, m)
	return nil
}

func decodeOurs(m *machine, body []byte) ([]tokenize.Turn, []byte, error) {
	err := m.decoder.DecodeBytes(body, &m.reply)
	return m.reply.Turns, m.reply.Rest, err
}

// decodeStd is the naive decoder: each triple of a log-probability (number, id, null) is a list of
// mixed values.
func decodeStd(_ *machine, body []byte) ([]tokenize.Turn, []byte, error) {
	var reply struct {
		StopReason json.RawMessage `json:"stop_reason"`
		Usage      json.RawMessage `json:"usage"`
		Turns      []struct {
			Role                string  `json:"role"`
			InputIDs            []int32 `json:"input_ids"`
			OutputIDs           []int32 `json:"output_ids"`
			OutputTokenLogprobs [][]any `json:"output_token_logprobs"`
			Content             string  `json:"content"`
			ToolName            string  `json:"tool_name"`
		} `json:"turns"`
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return nil, nil, err
	}
	turns := make([]tokenize.Turn, len(reply.Turns))
	for i := range reply.Turns {
		from, to := &reply.Turns[i], &turns[i]
		*to = tokenize.Turn{Role: tokenize.RoleTool, IDMismatch: -1, Content: from.Content, ToolName: from.ToolName}
		if from.Role != "assistant" {
			continue
		}
		to.Role, to.PromptIDs, to.OutputIDs = tokenize.RoleAssistant, from.InputIDs, from.OutputIDs
		to.Logprobs = make([]float32, len(from.OutputTokenLogprobs))
		for j, triple := range from.OutputTokenLogprobs {
			p, ok := triple[0].(float64)
			if !ok {
				p = math.NaN()
			}
			to.Logprobs[j] = float32(p)
			if id, ok := triple[1].(float64); to.IDMismatch < 0 && (!ok || int32(id) != from.OutputIDs[j]) {
				to.IDMismatch = j
			}
		}
	}
	rest, err := json.Marshal(map[string]json.RawMessage{"stop_reason": reply.StopReason, "usage": reply.Usage})
	return turns, rest, err
}

// fixed encodes every text as the same ids: no benchmark here measures a tokenizer.
type fixed struct{}

var fixedIDs [tokenizetest.ContextTokens]int32

func (fixed) AppendTokens(dst []int32, _ string) ([]int32, error) {
	return append(dst, fixedIDs[:]...), nil
}

// collect runs n rollouts through the whole path into a new dataset and returns the statistics.
func collect(tb testing.TB, b *bodies, source tokenize.PromptSource, workers, n int) collector.Stats {
	tb.Helper()
	b.prompts = promptsOf(tb, prompt.Config{Force: source, Encoder: fixed{}})
	d, err := sink.Create(tb.TempDir(), sink.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	sinks := sinktest.NewCrowd(d)
	c, err := collector.New(collector.Config{
		Endpoints: []collector.Endpoint{{Name: "memory", Backend: b, MaxInFlight: workers}},
		Planned:   n, Sink: sinks,
	})
	if err != nil {
		tb.Fatal(err)
	}
	g, ctx := errgroup.WithContext(tb.Context())
	g.Go(func() error { return d.Run(ctx) })
	runErr := c.Run(ctx, tasks(n))
	sinks.Wait()
	if err := d.Close(ctx); err != nil {
		tb.Fatal(err)
	}
	if err := g.Wait(); err != nil || runErr != nil {
		tb.Fatal(runErr, err)
	}
	s := c.Stats()
	if s.Committed != n || s.Remaining != 0 {
		tb.Fatalf("%d of %d committed: %+v", s.Committed, n, s)
	}
	return s
}

func BenchmarkCollect(b *testing.B) {
	recorded := tokenizetest.Options{Logprobs: true}
	for _, bc := range []struct {
		name    string
		shape   tokenizetest.Options
		source  tokenize.PromptSource
		workers int
		decode  func(*machine, []byte) ([]tokenize.Turn, []byte, error)
	}{
		{"decoder=ours/reply=turns/workers=1", tokenizetest.Options{}, tokenize.SourceLiteral, 1, decodeOurs},
		{"decoder=ours/reply=turns/workers=4", tokenizetest.Options{}, tokenize.SourceLiteral, 4, decodeOurs},
		{"decoder=ours/reply=recorded/workers=1", recorded, tokenize.SourceLiteral, 1, decodeOurs},
		{"decoder=ours/reply=input_ids/workers=1", tokenizetest.Options{Logprobs: true, InputIDs: true}, tokenize.SourceTurns, 1, decodeOurs},
		{"decoder=std/reply=turns/workers=1", tokenizetest.Options{}, tokenize.SourceLiteral, 1, decodeStd},
		{"decoder=std/reply=recorded/workers=1", recorded, tokenize.SourceLiteral, 1, decodeStd},
	} {
		b.Run(bc.name, func(b *testing.B) {
			size := 48 << 20 // bodies with some 8.6k sampled tokens each
			if testing.Short() {
				size = 1 << 20
			}
			all := tokenizetest.Corpus(500, size, bc.shape)
			var bytes int64
			for _, body := range all {
				bytes += int64(len(body))
			}
			back := &bodies{all: all, decode: bc.decode}
			b.SetBytes(bytes / int64(len(all)))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			s := collect(b, back, bc.source, bc.workers, b.N) // one run of b.N samples
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64(b.N)/seconds, "rollouts/s")
			b.ReportMetric(float64(s.Sampled)/seconds, "tokens/s")
			b.ReportMetric(float64(s.Sampled)/float64(b.N), "tokens/rollout")
			b.ReportMetric(float64(cpuTime(b)-before)/float64(s.Sampled), "cpu-ns/token")
		})
	}
}

// The TestGate… functions measure: they run one at a time, apart from the other tests.

// The whole path costs at most a sixth of the CPU of the same path on encoding/json: best of three
// runs against one run. It runs alone, because it measures the process.
func TestGateWholePathRatio(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures for some seconds: run without -short")
	}
	all := tokenizetest.Corpus(500, 24<<20, tokenizetest.Options{Logprobs: true})
	n := 4 * len(all) // so many that opening and sealing the shard do not count
	cpu := func(decode func(*machine, []byte) ([]tokenize.Turn, []byte, error)) time.Duration {
		runtime.GC()
		before := cpuTime(t)
		collect(t, &bodies{all: all, decode: decode}, tokenize.SourceLiteral, 1, n)
		return cpuTime(t) - before
	}
	ours, std := min(cpu(decodeOurs), cpu(decodeOurs), cpu(decodeOurs)), cpu(decodeStd)
	t.Logf("%d rollouts: ours %v, encoding/json %v, ratio %.1f", n, ours, std, float64(std)/float64(ours))
	if std < 6*ours {
		t.Errorf("the whole path costs %v, on encoding/json %v: %.1f×, want ≥ 6×", ours, std, float64(std)/float64(ours))
	}
}

// A rollout makes a bounded number of allocations for any number of tokens. The difference of two
// runs excludes the allocations that a run makes once.
func TestGateWholePathAllocs(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures for some seconds: run without -short")
	}
	const most = 110 // 93 to 98 on an idle machine; under load new goroutines add some
	all := tokenizetest.Corpus(500, 8<<20, tokenizetest.Options{})
	mallocs := func(n int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		collect(t, &bodies{all: all, decode: decodeOurs}, tokenize.SourceLiteral, 1, n)
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	mallocs(300) // fills the pools, so that neither of the two runs does
	few, many := mallocs(100), mallocs(300)
	got := float64(many-few) / 200
	t.Logf("%.1f allocations per rollout", got)
	if got > most {
		t.Errorf("%.1f allocations per rollout, want ≤ %d", got, most)
	}
}

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

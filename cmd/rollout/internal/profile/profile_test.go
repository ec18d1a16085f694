// Package profile_test profiles the program: make profile.
//
// A simulated server in its own process plays recorded rollouts, and the program collects them,
// with prompts from turns and with rebuilt prompts. The measurement is the CPU time, user and
// system, of the collecting process.
package profile_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/prompt/prompttest"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// A road is one way from a reply to a row.
type road struct {
	name              string
	simulate, collect []string
}

// A waiting program takes more time per rollout than a busy one: its threads sleep and wake, and
// its memory leaves the CPU caches.
func roads() []road {
	busy, waiting, ids := []string{"--latency", "0s"}, []string{"--latency", "100ms..300ms"}, "--input-ids"
	turns, rebuilt := []string{"--prompts", "turns"}, []string{"--prompts", "auto", "--tokenizer", bpetest.Path("qwen3"), "--require", "count_verified"}
	return []road{
		{"turns-busy", append(busy, ids), turns},
		{"turns-waiting", append(waiting, ids), turns},
		{"rebuilt-busy", busy, rebuilt},
		{"rebuilt-waiting", waiting, rebuilt},
	}
}

const profileLives = 16 // distinct ones: with few, branch predictors learn the bytes

type profiler struct {
	lives, out string // folders: of the lives, and for profiles
	config     string
}

func newProfiler(t *testing.T, out string) *profiler {
	t.Helper()
	p := &profiler{lives: prompttest.Write(t, profileLives), out: out, config: filepath.Join(t.TempDir(), "run.yaml")}
	noError(t, os.WriteFile(p.config, []byte("server: {adaptive: false}\n"), 0o666))
	return p
}

// A served is a simulated server in its own process.
type served struct {
	cmd        *exec.Cmd
	url, tasks string
}

// serve starts the server of a road, from the newer program even when the older one is measured.
func (p *profiler) serve(t *testing.T, bin string, r road) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{tasks: filepath.Join(dir, "tasks.jsonl")}
	ready := filepath.Join(dir, "ready")
	s.cmd = exec.CommandContext(t.Context(), bin, append([]string{"simulate", "--listen", "127.0.0.1:0", "--exchanges", p.lives, "--write-tasks", s.tasks, "--ready-file", ready}, r.simulate...)...)
	s.cmd.Stderr = os.Stderr
	noError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	waitFor(t, "the simulated server", func() bool {
		b, err := os.ReadFile(ready)
		s.url = strings.TrimSpace(string(b))
		return err == nil && s.url != ""
	})
	return s
}

func (p *profiler) collect(t *testing.T, bin string, r road, s *served, samples int, more ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"collect", "-c", p.config, "--server", s.url, "--model", "sglang//models/qwen3", "--tasks", s.tasks, "--samples", strconv.Itoa(samples), "--out", filepath.Join(t.TempDir(), "run")}, r.collect...)
	return exec.CommandContext(t.Context(), bin, append(args, more...)...)
}

type cost struct {
	cpu  time.Duration
	peak int64 // bytes resident
}

func (p *profiler) measure(t *testing.T, bin string, r road, s *served, samples int) cost {
	t.Helper()
	cmd := p.collect(t, bin, r, s, samples, "--quiet")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	noError(t, cmd.Start())
	peak := watchPeak(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &out)
	}
	return cost{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), peak: <-peak}
}

// watchPeak sends the process's peak resident memory in bytes when it has ended. A child's rusage
// is useless: its peak is at least the peak of its parent.
func watchPeak(pid int) <-chan int64 {
	peak := make(chan int64, 1)
	high := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)
	go func() {
		var last int64
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			m := high.FindSubmatch(status)
			if err != nil || m == nil { // a process that has ended has no memory
				peak <- last
				return
			}
			last, _ = strconv.ParseInt(string(m[1]), 10, 64)
			last <<= 10
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return peak
}

// perRollout returns the CPU time of one more rollout: a long run minus a short one, which contains
// the start, the tokenizer and the check of the server.
func perRollout(long, short cost, samples int) time.Duration {
	return (long.cpu - short.cpu) / time.Duration((samples-1)*profileLives)
}

// TestProfile implements make profile. It needs ROLLOUT_NEW, the program, and ROLLOUT_PROFILE, a
// folder for profiles. With ROLLOUT_OLD it compares two programs instead.
func TestProfile(t *testing.T) { //nolint:paralleltest // it has the machine for itself
	out, bin, old := os.Getenv("ROLLOUT_PROFILE"), os.Getenv("ROLLOUT_NEW"), os.Getenv("ROLLOUT_OLD")
	if out == "" || bin == "" {
		t.Skip("takes minutes: run make profile")
	}
	if runtime.GOOS != "linux" {
		t.Skip("reads the peak of memory as Linux gives it")
	}
	noError(t, os.MkdirAll(out, 0o777))
	p := newProfiler(t, out)
	samples, rounds := count(t, "ROLLOUT_PROFILE_SAMPLES", 40), count(t, "ROLLOUT_PROFILE_ROUNDS", 5)
	for _, r := range roads() {
		s := p.serve(t, bin, r)
		if old != "" {
			p.compare(t, old, bin, r, s, samples, rounds)
		} else {
			p.profile(t, bin, r, s, samples)
		}
		_ = s.cmd.Process.Signal(os.Interrupt)
		noError(t, s.cmd.Wait())
	}
}

func count(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("%s=%q is not a number from 2", name, text)
	}
	return n
}

// compare runs two programs in turn. It uses the ratio of each round and the best time of each
// program, because other load only adds time.
func (p *profiler) compare(t *testing.T, before, after string, r road, s *served, samples, rounds int) {
	t.Helper()
	var took [2][]time.Duration
	var peak [2]int64
	var ratios []float64
	for round := range rounds {
		var each [2]time.Duration
		for i := range each {
			if round%2 == 1 {
				i = 1 - i
			}
			bin := []string{before, after}[i]
			short, long := p.measure(t, bin, r, s, 1), p.measure(t, bin, r, s, samples)
			each[i] = perRollout(long, short, samples)
			took[i], peak[i] = append(took[i], each[i]), max(peak[i], long.peak)
		}
		ratios = append(ratios, float64(each[0])/float64(each[1]))
		t.Logf("%s, round %d: before %.2f ms, after %.2f ms CPU per rollout, %.2f×", r.name, round+1, ms(each[0]), ms(each[1]), ratios[round])
	}
	slices.Sort(ratios)
	t.Logf("%s: best of %d rounds: before %.2f ms, after %.2f ms CPU per rollout, %.2f×; median of the ratios %.2f×; peak memory before %.1f MB, after %.1f MB",
		r.name, rounds, ms(slices.Min(took[0])), ms(slices.Min(took[1])), float64(slices.Min(took[0]))/float64(slices.Min(took[1])),
		ratios[len(ratios)/2], float64(peak[0])/1e6, float64(peak[1])/1e6)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// profile measures one program, takes profiles of it while it runs, and prints where the time goes.
func (p *profiler) profile(t *testing.T, bin string, r road, s *served, samples int) {
	t.Helper()
	short, long := p.measure(t, bin, r, s, 1), p.measure(t, bin, r, s, samples)
	each := perRollout(long, short, samples)

	cmd := p.collect(t, bin, r, s, 1000*samples, "--metrics-addr", "127.0.0.1:0", "--metrics-pprof")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	noError(t, err)
	defer log.Close()
	cmd.Stderr = log
	noError(t, cmd.Start())
	var url string
	waitFor(t, "metrics", func() bool {
		said, _ := os.ReadFile(log.Name())
		url = strings.TrimSuffix(string(regexp.MustCompile(`http://\S+/metrics`).Find(said)), "/metrics")
		return url != ""
	})
	waitFor(t, "the first rollouts", func() bool { return metric(t, url, "rollout_rows_total") > 50 })
	counters := func() (rows, size, number float64) {
		return metric(t, url, "rollout_rows_total"), metric(t, url, "go_memstats_alloc_bytes_total"), metric(t, url, "go_memstats_mallocs_total")
	}
	rows, size, number := counters()
	cpu := p.save(t, r.name+".cpu.pb.gz", get(t, url+"/debug/pprof/profile?seconds=10"))
	endRows, endSize, endNumber := counters()
	rows = endRows - rows
	allocs := p.save(t, r.name+".allocs.pb.gz", get(t, url+"/debug/pprof/allocs"))
	_ = cmd.Process.Kill() // its exit status does not matter
	_ = cmd.Wait()

	t.Logf("%s: %.2f ms CPU per rollout, peak memory %.1f MB; %.0f KB in %.0f allocations per rollout", r.name, ms(each), float64(long.peak)/1e6,
		(endSize-size)/rows/1e3, (endNumber-number)/rows)
	traces := pprof(t, "-traces", "-unit=ms", bin, cpu)
	t.Logf("%s: CPU by stage\n%s", r.name, stageTable(traces, each))
	t.Logf("%s: CPU by function\n%s", r.name, pprof(t, "-top", "-nodecount=30", bin, cpu))
	t.Logf("%s: bytes allocated by function\n%s", r.name, pprof(t, "-top", "-sample_index=alloc_space", "-nodecount=20", bin, allocs))
	t.Logf("the profiles are %s and %s: go tool pprof -http : %s %s", cpu, allocs, bin, cpu)
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func pprof(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "pprof"}, args...)...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &problems)
	}
	return string(b)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	noError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v\n%s", url, resp.Status, err, b)
	}
	return b
}

func metric(t *testing.T, url, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(get(t, url+"/metrics"))
	if m == nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(m[1]), 64)
	noError(t, err)
	return f
}

func (p *profiler) save(t *testing.T, name string, b []byte) (path string) {
	t.Helper()
	path = filepath.Join(p.out, name)
	noError(t, os.WriteFile(path, b, 0o666))
	return path
}

// A stage is a part of the pipeline, identified by its entry functions.
type stage struct {
	name    string
	entered *regexp.Regexp
}

// background matches runtime work for all stages.
var background = regexp.MustCompile(`^runtime\.(gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge|gcStart|gcMarkDone|deductAssistCredit)`)

// readers match the functions that parse a server's JSON. documents are the purposes of the
// parsing, found anywhere in the stack.
var (
	readers   = regexp.MustCompile(`^encoding/json|go-json-experiment|/collector/letta\.(\(\*scanner\)|newScanner|validText)|\.UnmarshalJSON(From)?$`)
	documents = []stage{
		{"JSON: traces", regexp.MustCompile(`[tT]race|[wW]itness|readEnd`)},
		{"JSON: steps", regexp.MustCompile(`/collector/(letta|record|agent)\.[^/]*Steps?\b`)},
		{"JSON: stored messages", regexp.MustCompile(`messagePages|\.(Run|Agent|Conversation)Messages\b`)},
		{"JSON: messages of the reply", regexp.MustCompile(`LettaResponse|\(\*Client\)\.([sS]end|decodeReply)`)},
		{"JSON: agents, runs, the rest", regexp.MustCompile(`/collector/(letta|agent|record|prompt)\.`)},
	}
)

// stages are matched from the innermost function outwards; the first match of a function counts.
var stages = []stage{
	{"prompts: render, encode", regexp.MustCompile(`/tokenize/(bpe|chat)\.`)},
	{"prompts: the rest", regexp.MustCompile(`/collector/(prompt|record)\.`)},
	{"turns: decode", regexp.MustCompile(`/tokenize\.\(\*Decoder\)`)},
	{"rows: align, check", regexp.MustCompile(`/tokenize\.(\(\*(Aligner|Row)\)|CallsFrom)`)},
	{"write-ahead log, journal", regexp.MustCompile(`/collector/journal\.|/sink/frame\.|/sink\.\(\*[wW][aA][lL]|/sink\.[^/]*([wW]al|WAL)`)},
	{"Parquet", regexp.MustCompile(`parquet-go|/sink\.`)},
	{"HTTP", regexp.MustCompile(`^(net/http|net|net/textproto|internal/poll|bufio|crypto/|compress/)\b|/collector/(letta|agent)\.`)},
	{"metrics, logs, display", regexp.MustCompile(`prometheus|log/slog|/cmd/rollout`)},
	{"collector", regexp.MustCompile(`/collector(/limit|/breaker)?\.`)},
	{"scheduler, timers", regexp.MustCompile(`^runtime\.(mcall|mstart|schedule|findRunnable|sysmon|goexit0|park_m|timer)`)},
}

// stageTable divides the time of one rollout among the stages by their samples in a profile.
func stageTable(traces string, each time.Duration) string {
	by, total := map[string]float64{}, 0.0
	for block := range strings.SplitSeq(traces, "-----------+") {
		var value float64
		var stack []string
		for line := range strings.Lines(block) {
			fields := strings.Fields(line)
			if len(fields) == 0 || strings.HasPrefix(line, "--") {
				continue
			}
			if number, ok := strings.CutSuffix(fields[0], "ms"); ok && len(fields) > 1 && stack == nil {
				if v, err := strconv.ParseFloat(number, 64); err == nil {
					value, fields = v, fields[1:]
				}
			}
			if value > 0 {
				stack = append(stack, strings.Join(fields, " "))
			}
		}
		by[stageOf(stack)] += value
		total += value
	}
	maps.DeleteFunc(by, func(_ string, value float64) bool { return value == 0 })
	var out strings.Builder
	for _, name := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Compare(by[b], by[a]) }) {
		fmt.Fprintf(&out, "  %-30s %5.1f %%  %6.2f ms\n", name, 100*by[name]/total, ms(each)*by[name]/total)
	}
	return out.String()
}

func stageOf(stack []string) string {
	if slices.ContainsFunc(stack, background.MatchString) {
		return "garbage collection"
	}
	if slices.ContainsFunc(stack, readers.MatchString) {
		for _, d := range documents {
			if slices.ContainsFunc(stack, d.entered.MatchString) {
				return d.name
			}
		}
	}
	for _, f := range stack {
		for _, s := range stages {
			if s.entered.MatchString(f) {
				return s.name
			}
		}
	}
	return "other"
}

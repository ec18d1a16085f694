package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/collector/pace"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// busyRun returns the sources of a run at full load.
func busyRun(dir string) Vitals {
	return Vitals{
		Dir: dir,
		Collector: func() collector.Stats {
			return collector.Stats{
				Planned: 22, Committed: 9, Filtered: 2, Failed: 3, Skipped: 1, Remaining: 7,
				Yield:          collector.Yield{Sampled: 100, Trained: 90, Rows: 5, Downgraded: 4, VersionURL: 30, VersionNone: 10},
				Remade:         map[string]collector.RolloutCount{"no_prompt": {N: 3, Timed: 2, Time: 90 * time.Second}},
				Earlier:        collector.Earlier{Committed: 5, Filtered: 1, Failed: 1},
				Pace:           &pace.Stats{Version: 7, Paused: true, Begun: 9, Informative: 4, Filtered: 2, Failed: 1, Ahead: 3, Lags: [pace.LagMost + 1]int{0: 3, 1: 2, 5: 1, pace.LagMost: 1}},
				Endpoints:      []collector.EndpointStats{{Name: "http://a", InFlight: 3, Limit: 12, Max: 24, Down: true, Stages: map[collector.Stage]int{collector.StageRun: 3}}},
				Oldest:         &collector.InFlight{TaskID: "secret-task", Started: time.Now().Add(-time.Hour)},
				LongestInStage: &collector.InFlight{TaskID: "secret-task", Since: time.Now().Add(-time.Minute)},
			}
		},
		Taps: func() tap.IndexStats {
			return tap.IndexStats{
				Calls: 20, Claimed: 9, Unread: 2, Broken: 3, Evicted: 1, Retries: 1, Others: 4, Bytes: 5000,
				Refused: map[string]int64{"alike": 2}, Unshown: map[string]int64{"retry": 1},
				Read: tap.ReaderStats{Torn: 1, Lost: 6, Errors: 8},
			}
		},
		Sink: func() sink.Stats { return sink.Stats{Merges: 4, MergeErrors: 1, WALBytes: 4096, Pending: 2} },
	}
}

// happen triggers every event for n samples, each with its own names.
func happen(m *Metrics, n int) {
	m.Endpoint("http://a")
	watch := m.Watch("http://a")
	classes, kinds := collector.Classes(), collector.Kinds()
	methods := []string{"GET", "POST", "DELETE"}
	for i := range n {
		class := classes[i%len(classes)]
		task := &collector.Task{ID: fmt.Sprint("secret-task-", i)}
		a := collector.Attempt{Task: task, Key: fmt.Sprint("secret-key-", i), N: i, RunID: "secret-run", Kind: kinds[i%len(kinds)]}
		m.attemptStarted(a, "http://a")
		m.reattached(a, "http://a", nil)
		m.reattached(a, "http://a", errors.New("secret-text"))
		m.retryWaiting(a, collector.ClassConnection, time.Second)
		m.limitChanged("http://a", i, i+1, limit.Reasons()[0].String())
		m.attemptFinished(collector.Result{Attempt: a, Endpoint: "http://a", Class: class, Err: errors.New("secret-text"), Duration: time.Duration(i) * time.Second, FirstAnswer: time.Second})
		m.attemptFinished(collector.Result{Attempt: a, Endpoint: "http://a", Duration: 3 * time.Second})
		reward := float64(i%3) - 1
		m.sampleFinished(&tokenize.Sample{
			Key: a.Key, TaskID: task.ID, GroupID: fmt.Sprint("secret-group-", i/2), GroupSize: 2, AgentID: fmt.Sprint("secret-agent-", i),
			Reward: &reward, Status: []string{"completed", "truncated", "max_steps"}[i%3], StopReason: fmt.Sprint("secret-stop-", i),
			Rows: []tokenize.Row{{Truncated: i%2 == 0, Flags: []tokenize.Flags{tokenize.FlagCut, 0}[i%2]}}, PromptTokens: 10, CompletionTokens: int64(i), Steps: 2, Duration: time.Second,
		})
		m.sampleFinished(&tokenize.Sample{
			Key: a.Key, GroupID: fmt.Sprint("secret-lost-", i), GroupSize: 1,
			Failures: []tokenize.Failure{{Class: class.String(), Error: "secret-text"}},
		})
		_, end := watch(context.Background(), "send", "POST")
		end(letta.Exchange{Op: "send", Method: methods[i%3], Code: []int{200, 429, 500, 0, 600 + i}[i%5], Duration: time.Second})
		end(letta.Exchange{Op: "get run", Method: methods[i%3], Code: 200, Duration: time.Second})
		m.committed(sink.Commit{CreatedAt: time.Unix(1000, 0), Shards: []sink.Shard{{Bytes: 77, Path: fmt.Sprint("secret-path-", i)}}})
		m.sealed(sink.SealTimes{Encode: time.Second})
		m.synced(time.Millisecond, 3, 100)
		m.engine("http://a", limit.Engine{KVUsage: .5, Waiting: 2, Preemptions: -1})
	}
}

func busyMetrics(samples int) *Metrics {
	m := NewMetrics("v1")
	happen(m, samples)
	return m
}

func scrape(t *testing.T, m *Metrics, profiles bool, v Vitals, path string) (code int, body string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer m.Serve(t.Context(), l, profiles, v)()
	resp, err := http.Get("http://" + l.Addr().String() + path)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(b)
}

// TestMetrics checks that the scraped values are the counted ones, and that no id becomes a label.
func TestMetrics(t *testing.T) {
	t.Parallel()
	_, body := scrape(t, busyMetrics(6), false, busyRun(t.TempDir()), "/metrics")
	lines, err := os.ReadFile("testdata/metrics.txt")
	must(t, err)
	goVersion := regexp.MustCompile(`go[0-9.]+\S*`).FindString(version.Read().Go)
	for line := range strings.Lines(strings.Replace(string(lines), "GO", goVersion, 1)) {
		if !strings.Contains(body, "\n"+line) {
			name := line[:strings.IndexAny(line, "{ ")]
			t.Errorf("no line %q; there are\n%s", line, strings.Join(regexp.MustCompile(`(?m)^`+name+`[{ ].*`).FindAllString(body, 8), "\n"))
		}
	}
	for _, age := range []struct {
		name  string
		least float64
	}{{"rollout_oldest_in_flight_seconds", 3600}, {"rollout_sample_idle_seconds_max", 60}, {"rollout_disk_free_bytes", 1}} {
		var v float64
		if line := regexp.MustCompile(`(?m)^` + age.name + ` (.+)`).FindStringSubmatch(body); line != nil {
			_, _ = fmt.Sscan(line[1], &v)
		}
		if v < age.least {
			t.Errorf("%s is %v", age.name, v)
		}
	}
	if strings.Contains(body, "secret-") {
		t.Error("a name or a text became a label")
	}
}

// TestMetricsCardinality checks that the number of series does not grow with the run.
func TestMetricsCardinality(t *testing.T) {
	t.Parallel()
	series := func(samples int) int {
		families, err := busyMetrics(samples).gather(busyRun(t.TempDir())).Gather()
		must(t, err)
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	few, many := series(30), series(3000)
	if few != many {
		t.Errorf("%d series after 30 samples, %d after 3000", few, many)
	}
	if many > 600 {
		t.Errorf("%d series of one endpoint", many)
	}
	t.Logf("%d series", many)
}

// TestOpenGroups checks that no ended group stays in memory.
func TestOpenGroups(t *testing.T) {
	t.Parallel()
	m := busyMetrics(1000)
	if n := len(m.open.groups); n != 0 {
		t.Errorf("%d groups are open", n)
	}
	var o openGroups
	o.groups = map[string]*openGroup{}
	add := func(reward float64, kept bool) (*openGroup, bool) {
		return o.add(&tokenize.Sample{GroupID: "g", GroupSize: 3, Reward: &reward}, kept)
	}
	add(1, true)
	if _, ended := add(1, true); ended {
		t.Error("two of three are all")
	}
	if g, ended := add(0, false); !ended || g.outcome() != groupPartial || g.reason() != reasonZeroVariance {
		t.Errorf("ended %v: %s, %s", ended, g.outcome(), g.reason())
	}
}

// TestReadiness checks that a process is healthy as soon as it serves, and ready when it can work.
func TestReadiness(t *testing.T) {
	t.Parallel()
	up := busyRun(t.TempDir())
	stats := up.Collector
	up.Collector = func() collector.Stats {
		s := stats()
		s.Endpoints = append(s.Endpoints, collector.EndpointStats{Name: "http://b"})
		return s
	}
	gone := up
	gone.Dir = filepath.Join(t.TempDir(), "gone")
	for _, tc := range []struct {
		name string
		v    Vitals
		want string
	}{
		{"works", up, ""},
		{"no endpoint is up", busyRun(up.Dir), "no endpoint is up"},
		{"the folder is gone", gone, "storage: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := NewMetrics("v1")
			code, body := scrape(t, m, false, tc.v, "/readyz")
			if tc.want == "" && code != http.StatusOK || tc.want != "" && (code != http.StatusServiceUnavailable || !strings.HasPrefix(body, tc.want)) {
				t.Errorf("%d %q, want %q", code, body, tc.want)
			}
			if code, _ := scrape(t, m, false, tc.v, "/healthz"); code != http.StatusOK {
				t.Errorf("/healthz: %d", code)
			}
			if code, _ := scrape(t, m, true, tc.v, "/debug/pprof/cmdline"); code != http.StatusNotFound {
				t.Errorf("/debug/pprof/cmdline: %d: it would show arguments", code)
			}
			// Profiles are served only if enabled.
			for profiles, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
				if code, _ := scrape(t, m, profiles, tc.v, "/debug/pprof/goroutine?debug=1"); code != want {
					t.Errorf("/debug/pprof/goroutine with profiles %v: %d, want %d", profiles, code, want)
				}
			}
		})
	}
}

// TestLabelValues checks that the closed sets of label values have no duplicates.
func TestLabelValues(t *testing.T) {
	t.Parallel()
	var reasons []string
	for _, r := range limit.Reasons() {
		reasons = append(reasons, r.String())
	}
	slices.Sort(reasons)
	if len(slices.Compact(slices.Clone(reasons))) != len(reasons) || codeLabel(799) != "other" || codeLabel(404) != "404" || codeLabel(0) != "error" {
		t.Errorf("reasons %v; 799 is %q", reasons, codeLabel(799))
	}
}

package show

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/version"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/limit"
	"github.com/rollout-rl/rollout/sink"
	"github.com/rollout-rl/rollout/tokenize"
)

// busyRun is what a run in full swing shows.
func busyRun(dir string) Vitals {
	return Vitals{
		Dir: dir,
		Collector: func() collector.Stats {
			return collector.Stats{
				Planned: 20, Committed: 9, Failed: 3, Skipped: 1, Remaining: 7,
				Yield:          collector.Yield{Sampled: 100, Trained: 90, Rows: 5, Downgraded: 4},
				Remade:         map[string]collector.RolloutCount{"no_prompt": {N: 3, Timed: 2, Time: 90 * time.Second}},
				Earlier:        collector.Earlier{Committed: 5, Failed: 1},
				Endpoints:      []collector.EndpointStats{{Name: "http://a", InFlight: 3, Limit: 12, Max: 24, Down: true, Stages: map[collector.Stage]int{collector.StageRun: 3}}},
				Oldest:         &collector.InFlight{TaskID: "secret-task", Started: time.Now().Add(-time.Hour)},
				LongestInStage: &collector.InFlight{TaskID: "secret-task", Since: time.Now().Add(-time.Minute)},
			}
		},
		Sink: func() sink.Stats { return sink.Stats{WALBytes: 4096, Pending: 2} },
	}
}

// happen makes everything happen to n samples that can, each with names of its own.
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

// busyMetrics are the metrics of such a run.
func busyMetrics(t *testing.T, samples int) *Metrics {
	t.Helper()
	v := busyRun(t.TempDir())
	m := NewMetrics("v1", func() Vitals { return v })
	happen(m, samples)
	return m
}

// scrape serves m and gets one of its pages.
func scrape(t *testing.T, m *Metrics, profiles bool, ready func() error, path string) (code int, body string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Serve(t.Context(), l, profiles, ready)()
	resp, err := http.Get("http://" + l.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// What is scraped is what was counted, and no id becomes a label.
func TestMetrics(t *testing.T) {
	t.Parallel()
	_, body := scrape(t, busyMetrics(t, 6), false, nil, "/metrics")
	for _, line := range []string{
		"rollout_samples_planned 20",
		`rollout_samples_total{outcome="committed"} 4`, // in this process
		`rollout_samples_total{outcome="failed"} 2`,
		`rollout_samples_total{outcome="skipped"} 1`,
		`rollout_samples_earlier{outcome="committed"} 5`,
		`rollout_samples_earlier{outcome="failed"} 1`,
		"rollout_samples_remaining 7",
		`rollout_remade_total{reason="no_prompt"} 3`,
		`rollout_remade_total{reason="connection"} 0`,
		`rollout_remade_seconds_total{reason="no_prompt"} 90`,
		"rollout_rows_downgraded_total 4",
		`rollout_samples_in_flight{endpoint="http://a",stage="run"} 3`,
		`rollout_samples_in_flight{endpoint="http://a",stage="open"} 0`,
		`rollout_concurrency_limit{endpoint="http://a"} 12`,
		`rollout_concurrency_ceiling{endpoint="http://a"} 24`,
		`rollout_concurrency_changes_total{direction="up",endpoint="http://a",reason="slow_start"} 6`,
		`rollout_breaker_open{endpoint="http://a"} 1`,
		`rollout_attempts_total{class="first"} 2`,
		`rollout_attempts_total{class="reattach"} 1`,
		`rollout_attempt_duration_seconds_count{outcome="finished"} 6`,
		`rollout_failures_total{class="timeout_total"} 1`,
		`rollout_failures_total{class="auth"} 0`,
		`rollout_sample_duration_seconds_count{outcome="committed"} 6`,
		`rollout_sample_duration_seconds_count{outcome="failed"} 6`,
		`rollout_groups_total{outcome="complete",reason="other"} 3`,
		`rollout_groups_total{outcome="partial",reason="other"} 6`,
		`rollout_truncated_total{reason="max_row_tokens"} 3`,
		`rollout_truncated_total{reason="max_tokens"} 2`,
		`rollout_tokens_total{kind="completion"} 100`,
		`rollout_tokens_total{kind="prompt"} 60`,
		`rollout_tokens_total{kind="trainable"} 90`,
		`rollout_reward_count 6`,
		`rollout_reward_bucket{le="0"} 4`,
		`rollout_reattached_total{endpoint="http://a",reason="gone"} 6`,
		`rollout_retry_wait_seconds_total{reason="connection"} 6`,
		`rollout_http_requests_total{code="error",endpoint="http://a",method="GET"} 1`,
		`rollout_http_request_duration_seconds_count{endpoint="http://a",method="GET"} 2`,
		`rollout_engine_kv_cache_usage_ratio{endpoint="http://a"} 0.5`,
		`rollout_shard_bytes_total{format="parquet",kind="data"} 462`,
		`rollout_shard_commit_duration_seconds_count{stage="encode"} 6`,
		`rollout_wal_fsync_duration_seconds_count 6`,
		"rollout_wal_bytes 4096", "rollout_wal_records 2",
		"rollout_last_commit_timestamp_seconds 1000",
		`rollout_build_info{go_version="` + goVersion() + `",schema_version="1",version="v1"} 1`,
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
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

func goVersion() string { return regexp.MustCompile(`go[0-9.]+\S*`).FindString(version.Read().Go) }

// The number of series does not grow with the run.
func TestMetricsCardinality(t *testing.T) {
	t.Parallel()
	series := func(samples int) int {
		families, err := busyMetrics(t, samples).registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	few, many := series(30), series(100_000)
	if few != many {
		t.Errorf("%d series after 30 samples, %d after a hundred thousand", few, many)
	}
	if many > 600 {
		t.Errorf("%d series of one endpoint", many)
	}
	t.Logf("%d series", many)
}

// No group stays in memory once it has ended.
func TestOpenGroups(t *testing.T) {
	t.Parallel()
	m := busyMetrics(t, 1000)
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

// Names, types and helps keep Prometheus' rules.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	_, body := scrape(t, busyMetrics(t, 30), false, nil, "/metrics")
	var ours bytes.Buffer
	for line := range strings.Lines(body) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "rollout_") {
			ours.WriteString(line)
		}
	}
	problems, err := promlint.New(&ours).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// A process is healthy as soon as it serves, and ready when it can work.
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
		{"has not started", Vitals{}, "not started"},
		{"no endpoint is up", busyRun(up.Dir), "none of 1 endpoints is up"},
		{"the folder is gone", gone, "storage: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := NewMetrics("v1", func() Vitals { return tc.v })
			code, body := scrape(t, m, false, tc.v.Ready, "/readyz")
			if tc.want == "" && code != http.StatusOK || tc.want != "" && (code != http.StatusServiceUnavailable || !strings.HasPrefix(body, tc.want)) {
				t.Errorf("%d %q, want %q", code, body, tc.want)
			}
			if code, _ := scrape(t, m, false, tc.v.Ready, "/healthz"); code != http.StatusOK {
				t.Errorf("/healthz: %d", code)
			}
			if code, _ := scrape(t, m, true, tc.v.Ready, "/debug/pprof/cmdline"); code != http.StatusNotFound {
				t.Errorf("/debug/pprof/cmdline: %d: it would show arguments", code)
			}
			// Profiles are served to nobody who did not ask for them.
			for profiles, want := range map[bool]int{false: http.StatusNotFound, true: http.StatusOK} {
				if code, _ := scrape(t, m, profiles, tc.v.Ready, "/debug/pprof/goroutine?debug=1"); code != want {
					t.Errorf("/debug/pprof/goroutine with profiles %v: %d, want %d", profiles, code, want)
				}
			}
		})
	}
}

// An alertFile is configs/alerts.yml, as far as it is looked at.
type alertFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func readAlerts(t *testing.T) (f alertFile) {
	t.Helper()
	b, err := os.ReadFile("../../../../configs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

// A dashboard is configs/grafana-dashboard.json, as far as it is looked at.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct{ Name, Type, Query any }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  struct{ UID string }
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	b, err := os.ReadFile("../../../../configs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every metric and every label that the dashboard and the alerts use is there, and
// every metric of ours is on the dashboard.
func TestDashboardAndAlertsFitTheMetrics(t *testing.T) {
	t.Parallel()
	families, err := busyMetrics(t, 30).registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]*dto.MetricFamily{}
	labels := map[string]bool{"le": true, "job": true, "instance": true}
	for _, f := range families {
		name := f.GetName()
		series[name] = f
		if f.GetType() == dto.MetricType_HISTOGRAM {
			series[name+"_bucket"], series[name+"_sum"], series[name+"_count"] = f, f, f
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
			}
		}
	}
	names := regexp.MustCompile(`\b(?:rollout|process|go|up)_[a-z0-9_]+`)
	grouping := regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)`)
	used := map[string]bool{}
	check := func(where, expr string) {
		found := names.FindAllString(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s: no metric in %q", where, expr)
		}
		for _, name := range found {
			if series[name] == nil {
				t.Errorf("%s: there is no metric %s", where, name)
				continue
			}
			used[series[name].GetName()] = true
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for l := range strings.SplitSeq(g[1], ",") {
				if l = strings.TrimSpace(l); !labels[l] {
					t.Errorf("%s: there is no label %q", where, l)
				}
			}
		}
		for _, l := range regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`).FindAllStringSubmatch(expr, -1) {
			if !labels[l[1]] {
				t.Errorf("%s: there is no label %q", where, l[1])
			}
		}
	}
	legend := regexp.MustCompile(`{{ ?(?:\$labels\.)?([a-z_]+) ?}}`)
	checkLabels := func(where, text string) {
		for _, l := range legend.FindAllStringSubmatch(text, -1) {
			if !labels[l[1]] {
				t.Errorf("%s: there is no label %q", where, l[1])
			}
		}
	}
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			check(r.Alert, r.Expr)
			checkLabels(r.Alert, r.Annotations["description"])
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary, description or severity", r.Alert)
			}
		}
	}
	d := readDashboard(t)
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %d twice", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: data source %q, %d targets, at %+v", p.Title, p.Datasource.UID, len(p.Targets), p.GridPos)
		}
		for _, q := range p.Targets {
			check(p.Title, q.Expr)
			checkLabels(p.Title, q.LegendFormat)
		}
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "rollout_") && !used[name] {
			t.Errorf("%s is on no panel and in no alert", name)
		}
	}
}

// promtool reads the alerts, and every expression of the dashboard.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on PATH (Debian: prometheus): the alerts' syntax is not checked")
	}
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*").Replace(q.Expr)
			quoted, err := json.Marshal(expr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&rules, "      - record: panel:%d\n        expr: %s\n", n, quoted)
			n++
		}
	}
	for _, name := range []string{"../../../../configs/alerts.yml", fileOf(t, "dashboard.yml", rules.String())} {
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", name).CombinedOutput(); err != nil {
			t.Errorf("promtool check rules %s: %v\n%s", name, err, out)
		}
	}
	alerts, err := filepath.Abs("../../../../configs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests := fileOf(t, "test.yml", strings.Replace(alertTests, "RULES", alerts, 1))
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", tests).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			if !strings.Contains(alertTests, "alertname=\""+r.Alert+"\"") {
				t.Errorf("no test makes %s fire", r.Alert)
			}
		}
	}
}

// alertTests make every alert fire, and show that a run in good order makes none.
const alertTests = `
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'rollout_sample_idle_seconds_max{instance="i"}'
        values: '0+60x60'
      - series: 'rollout_last_commit_timestamp_seconds{instance="i"}'
        values: '1x60'
      - series: 'rollout_wal_records{instance="i"}'
        values: '1x60'
      - series: 'rollout_wal_bytes{instance="i"}'
        values: '0+100x60'
      - series: 'rollout_shards_committed_total{instance="i",format="parquet",kind="data"}'
        values: '3x60'
      - series: 'rollout_failures_total{instance="i",job="j",class="connection"}'
        values: '0+1x60'
      - series: 'rollout_sample_duration_seconds_count{instance="i",job="j",outcome="committed"}'
        values: '0+3x60'
      - series: 'rollout_sample_duration_seconds_count{instance="i",job="j",outcome="failed"}'
        values: '0+1x60'
      - series: 'rollout_concurrency_limit{instance="i",endpoint="e"}'
        values: '1x60'
      - series: 'rollout_concurrency_ceiling{instance="i",endpoint="e"}'
        values: '64x60'
      - series: 'rollout_breaker_open{instance="i",endpoint="e"}'
        values: '0x60'
      - series: 'rollout_breaker_open{instance="i",endpoint="down"}'
        values: '1x60'
      - series: 'rollout_disk_free_bytes{instance="i"}'
        values: '1000000x60'
      - series: 'rollout_agents_left_total{instance="i"}'
        values: '0+5x60'
      - series: 'rollout_remade_total{instance="i",job="j",reason="connection"}'
        values: '0+1x60'
    promql_expr_test:
      - expr: 'count by (alertname) (ALERTS{alertstate="firing"})'
        eval_time: 50m
        exp_samples:
          - {labels: '{alertname="RolloutSampleSilent"}', value: 1}
          - {labels: '{alertname="RolloutCommitsStalled"}', value: 1}
          - {labels: '{alertname="RolloutFailureRatio"}', value: 1}
          - {labels: '{alertname="RolloutWALGrows"}', value: 1}
          - {labels: '{alertname="RolloutConcurrencyAtFloor"}', value: 1}
          - {labels: '{alertname="RolloutServerDown"}', value: 1}
          - {labels: '{alertname="RolloutDiskLow"}', value: 1}
          - {labels: '{alertname="RolloutAgentsLeft"}', value: 1}
          - {labels: '{alertname="RolloutRemade"}', value: 1}
  - interval: 1m
    input_series:
      - series: 'rollout_sample_idle_seconds_max{instance="i"}'
        values: '30x60'
      - series: 'rollout_last_commit_timestamp_seconds{instance="i"}'
        values: '0+60x60'
      - series: 'rollout_wal_records{instance="i"}'
        values: '5x60'
      - series: 'rollout_wal_bytes{instance="i"}'
        values: '0+100x60'
      - series: 'rollout_shards_committed_total{instance="i",format="parquet",kind="data"}'
        values: '0+1x60'
      - series: 'rollout_failures_total{instance="i",job="j",class="connection"}'
        values: '0+1x60'
      - series: 'rollout_failures_total{instance="i",job="j",class="censored"}'
        values: '0+9x60'
      - series: 'rollout_sample_duration_seconds_count{instance="i",job="j",outcome="committed"}'
        values: '0+30x60'
      - series: 'rollout_concurrency_limit{instance="i",endpoint="e"}'
        values: '20x60'
      - series: 'rollout_concurrency_ceiling{instance="i",endpoint="e"}'
        values: '64x60'
      - series: 'rollout_breaker_open{instance="i",endpoint="e"}'
        values: '0x60'
      - series: 'rollout_disk_free_bytes{instance="i"}'
        values: '100000000000x60'
      - series: 'rollout_agents_left_total{instance="i"}'
        values: '3x60'
      - series: 'rollout_remade_total{instance="i",job="j",reason="connection"}'
        values: '0+1x60'
    promql_expr_test:
      - expr: 'count by (alertname) (ALERTS)'
        eval_time: 50m
        exp_samples: []
`

// The closed lists that labels take their values from hold no name twice.
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

// fileOf is the path of a file that holds a text.
func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"

	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/continuity"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// An alertFile is the tested part of configs/alerts.yml.
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
	must(t, err)
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	must(t, d.Decode(&f))
	return f
}

// A dashboard is the tested part of configs/grafana-dashboard.json.
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
	must(t, err)
	must(t, json.Unmarshal(b, &d))
	return d
}

// TestDashboardAndAlertsFitTheMetrics checks that every metric and label of the dashboard and the
// alerts exists, that every metric is on the dashboard or in an alert, and the metrics' names and texts.
func TestDashboardAndAlertsFitTheMetrics(t *testing.T) {
	t.Parallel()
	families, err := busyMetrics(30).gather(busyRun(t.TempDir())).Gather()
	must(t, err)
	tapped, err := NewTapMetrics(func() proxy.Stats {
		return proxy.Stats{
			Engines: []proxy.EngineStats{{Engine: "http://127.0.0.1:30000"}}, Unread: map[string]int64{"cut": 1},
			Time:       proxy.Histogram{Bounds: []float64{1}, Counts: []int64{2, 1}, Sum: 3},
			Continuity: proxy.Histogram{Bounds: []float64{1}, Counts: []int64{2, 1}, Sum: 3},
		}
	}, func() tap.SpoolStats { return tap.SpoolStats{} }, func() continuity.Stats {
		return continuity.Stats{Prompts: map[continuity.Reason]int64{continuity.ReasonSpace: 1}}
	}).Gather()
	must(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint() // the rules of Prometheus for names, types and help texts
	must(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "rollout_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	series := map[string]*dto.MetricFamily{}
	labels := map[string]bool{"le": true, "job": true, "instance": true}
	for _, f := range slices.Concat(tapped, families) {
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
	for _, f := range slices.Concat(families, tapped) {
		if name := f.GetName(); strings.HasPrefix(name, "rollout_") && !used[name] {
			t.Errorf("%s is on no panel and in no alert", name)
		}
	}
}

// TestPromtool checks the alerts and every expression of the dashboard with promtool.
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
			expr := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$tap", ".*").Replace(q.Expr)
			quoted, err := json.Marshal(expr)
			must(t, err)
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
	must(t, err)
	var firing strings.Builder
	for _, g := range readAlerts(t).Groups {
		for _, r := range g.Rules {
			fmt.Fprintf(&firing, "          - {labels: '{alertname=%q}', value: 1}\n", r.Alert)
		}
	}
	if n := strings.Count(firing.String(), "\n"); n != 18 {
		t.Errorf("%d alerts, want 18", n)
	}
	text, err := os.ReadFile("testdata/alerts.yml")
	must(t, err)
	tests := fileOf(t, "test.yml", strings.NewReplacer("[RULES]", "["+alerts+"]", "FIRING\n", firing.String()).Replace(string(text)))
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", tests).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

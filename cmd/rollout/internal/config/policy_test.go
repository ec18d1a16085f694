package config

import (
	"strings"
	"testing"
)

// tokens.policy_version accepts a number, a page, or a reference to a page, from every source of
// settings.
func TestPolicyVersion(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PAGE": "https://user:hunter2@trainer/v?token=hunter3"}
	for _, tt := range []struct {
		name, file, variable, flag string
		claimed, traces            bool
		version                    int32
		url, shown, json, bad      string
	}{
		{name: "none", json: `""`},
		{name: "a number in the file", file: "tokens: {policy_version: 0}\n", claimed: true, json: `"0"`},
		{name: "a number in the environment", variable: "12", claimed: true, version: 12, json: `"12"`},
		{name: "traces", flag: "trace", traces: true, json: `"trace"`},
		{name: "traces in the file", file: "tokens: {policy_version: trace}\n", traces: true, json: `"trace"`},
		{name: "a page", flag: "http://h:30000/model_info#a.b", url: "http://h:30000/model_info#a.b", shown: "http://h:30000/model_info", json: `"http://h:30000/model_info#a.b"`},
		{name: "a reference", flag: "${env:PAGE}", url: env["PAGE"], shown: "https://trainer", json: `"${env:PAGE}"`},
		{name: "a reference to nothing", flag: "${env:NONE}", bad: "NONE is not set"},
		{name: "a negative number", flag: "-1", bad: "must be ≥ 0"},
		{name: "a large number", flag: "2147483648", bad: "must be ≥ 0 and ≤ 2147483647"},
		{name: "a word", flag: "latest", bad: "want a whole number"},
		{name: "no whole number", flag: "1.5", bad: "want a whole number"},
		{name: "a password", flag: "http://u:hunter2@h/", bad: "use a reference"},
		{name: "a query", flag: "http://h/?token=hunter2", bad: "use a reference"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := map[string]string{"PAGE": env["PAGE"], "ROLLOUT_TOKENS_POLICY_VERSION": tt.variable}
			var flags []string
			if tt.flag != "" {
				flags = []string{"--policy-version", tt.flag}
			}
			l, err := loadWith(t, tt.file, all, flags...)
			if tt.bad != "" {
				if text := strings.Join(complaintsOf(l), "\n"); !strings.Contains(text, tt.bad) || strings.Contains(text, "hunter") {
					t.Errorf("complaints %q, want %q and no secret", text, tt.bad)
				}
				return
			}
			if err != nil || len(l.Bad) > 0 {
				t.Fatal(err, l.Bad)
			}
			v := l.Config.Tokens.PolicyVersion
			if v.Claimed != tt.claimed || v.Traces != tt.traces || v.Version != tt.version || v.URL.Reveal() != tt.url || v.Shown != tt.shown {
				t.Errorf("%+v (%s), want %+v", v, v.URL.Reveal(), tt)
			}
			if raw, err := l.ByKey["tokens.policy_version"].Json(); err != nil || string(raw) != tt.json {
				t.Errorf("run.json holds %s (%v), want %s", raw, err, tt.json)
			}
		})
	}
}

// A continued run does not keep the claimed version of an earlier invocation, but it keeps a page.
func TestPolicyVersionOfAnEarlierInvocation(t *testing.T) {
	t.Parallel()
	for had, want := range map[string]string{`"7"`: "", `"http://h/v"`: "http://h/v"} {
		l, err := loadWith(t, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		l.FromRun(Values{"tokens": {"policy_version": []byte(had)}}, "")
		if got := l.ByKey["tokens.policy_version"].Text(); got != want || len(l.Bad) > 0 {
			t.Errorf("of a run with %s: %q (%v), want %q", had, got, l.Bad, want)
		}
	}
}

// The claim of one engine holds only for the same page and the same servers.
func TestOneEngineOfAnEarlierInvocation(t *testing.T) {
	t.Parallel()
	had := Values{
		"server": {"urls": []byte(`["http://one"]`)},
		"tokens": {"policy_version": []byte(`"http://h/v"`), "one_engine": []byte(`true`)},
	}
	for _, c := range []struct {
		name, server, version string
		want                  bool
	}{
		{"the same", "", "", true},
		{"said again", "http://one", "http://h/v", true},
		{"another page", "", "http://h/w", false},
		{"another server", "http://two", "", false},
		{"a claim", "", "9", false},
	} {
		env := map[string]string{"ROLLOUT_SERVER_URLS": c.server, "ROLLOUT_TOKENS_POLICY_VERSION": c.version}
		l, err := loadWith(t, "", env)
		if err != nil {
			t.Fatal(err)
		}
		l.FromRun(had, "")
		if l.Config.Tokens.OneEngine != c.want || len(l.Bad) > 0 {
			t.Errorf("%s: one engine: %v (%v), want %v", c.name, l.Config.Tokens.OneEngine, l.Bad, c.want)
		}
	}
}

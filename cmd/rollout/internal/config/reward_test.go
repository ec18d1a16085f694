package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// loadedReward loads a file with the section reward.
func loadedReward(t *testing.T, text string) (*Loader, string) {
	t.Helper()
	l := NewLoader(func(string) string { return "" })
	path := filepath.Join(t.TempDir(), "run.yaml")
	must(t, os.WriteFile(path, []byte("reward: "+text+"\n"), 0o600))
	must(t, l.File(path))
	bad := l.Bad
	if len(bad) == 0 {
		bad = l.Config.check(l.where)
	}
	return l, fmt.Sprint(bad.Error())
}

func rawOf(t *testing.T, l *Loader, key string) string {
	t.Helper()
	raw, err := l.ByKey[key].Json()
	must(t, err)
	return string(raw)
}

func TestRewardKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, file, function string
		group                bool
		bad                  string
	}{
		{"python:score.py:score", "score.py", "score", false, ""},
		{"python:/a:b/score.py:_größe2", "/a:b/score.py", "_größe2", false, ""},
		{"python-group:score.py:rank", "score.py", "rank", true, ""},
		{"exact", "", "", false, ""},
		{"python", "", "", false, `"python" is not one of none, exact, contains, regex, number, json, command, components, python:FILE:FUNCTION, python-group:FILE:FUNCTION`},
		{"python:score.py", "", "", false, `"python:score.py" is not python:FILE:FUNCTION, such as python:score.py:score`},
		{"python-group::score", "", "", false, `"python-group::score" is not python-group:FILE:FUNCTION, such as python-group:score.py:score`},
		{"python:score.py:", "", "", false, "is not python:FILE:FUNCTION"},
		{"python:score.py:a.b", "", "", false, "is not python:FILE:FUNCTION"},
		{"exat", "", "", false, "; did you mean exact?"},
	} {
		l, bad := loadedReward(t, fmt.Sprintf("{kind: %q}", tt.kind))
		if tt.bad != "" {
			if !strings.Contains(bad, "reward.kind: ") || !strings.Contains(bad, tt.bad) {
				t.Errorf("%s: %q, want %q", tt.kind, bad, tt.bad)
			}
			continue
		}
		file, function, group := l.Config.Reward.Kind.Python()
		if bad != "" || file != tt.file || function != tt.function || group != tt.group {
			t.Errorf("%s: %q %q %v, %s", tt.kind, file, function, group, bad)
		}
		if got := rawOf(t, l, "reward.kind"); got != fmt.Sprintf("%q", tt.kind) {
			t.Errorf("%s is stored as %s", tt.kind, got)
		}
	}
}

// Each setting of a reward is used by a kind, or cannot change a score.
func TestRewardUses(t *testing.T) {
	t.Parallel()
	kinds := []Reward{RewardExact, RewardContains, RewardRegex, RewardNumber, RewardJSON, RewardCommand, RewardComponents}
	for _, s := range NewLoader(func(string) string { return "" }).Settings {
		name, ok := strings.CutPrefix(s.Key, "reward.")
		if !ok {
			continue
		}
		n := 0
		for _, k := range kinds {
			if k.Uses(name) {
				n++
			}
		}
		want := map[string]int{"kind": 0, "processes": 0, "timeout": 0, "include_reasoning": len(kinds), "min_std": len(kinds), "ignore_case": 2}
		if most, ok := want[name]; !ok && n != 1 || ok && n != most {
			t.Errorf("%d kinds use %s", n, s.Key)
		}
		if Reward("python:a.py:f").Uses(name) != (n == len(kinds)) {
			t.Errorf("python uses %s: %t", s.Key, n != len(kinds))
		}
	}
}

func TestRewardComponents(t *testing.T) {
	t.Parallel()
	if _, bad := loadedReward(t, `{kind: components, components: {correct: {kind: regex, pattern: 7, tolerance: 0}}}`); !strings.Contains(bad, `reward.components: "correct": pattern: must be a string, got a number`) {
		t.Errorf("a number as a pattern: %s", bad)
	}
	l, bad := loadedReward(t, `{kind: components, components: {style: {kind: "python:style.py:f", weight: -0.5}, correct: {kind: regex, pattern: "7"}, log: {kind: command, command: [sh, x], weight: 0}}}`)
	want := []Component{
		{Name: "correct", Weight: 1, Scorer: Scorer{Kind: RewardRegex, Pattern: "7"}},
		{Name: "log", Scorer: Scorer{Kind: RewardCommand, Command: []string{"sh", "x"}}},
		{Name: "style", Weight: -0.5, Scorer: Scorer{Kind: "python:style.py:f"}},
	}
	if got := l.Config.Reward.Scorers(); bad != "" || !reflect.DeepEqual(got, want) || l.Config.Reward.Programs() != 2 {
		t.Errorf("components %+v, %s, want %+v", got, bad, want)
	}
	// A resumed run has the same components.
	again := NewLoader(func(string) string { return "" })
	values := Values{"reward": {"kind": []byte(rawOf(t, l, "reward.kind")), "components": []byte(rawOf(t, l, "reward.components"))}}
	again.FromRun(values)
	if len(again.Bad) > 0 || !reflect.DeepEqual(again.Config.Reward.Components, want) {
		t.Errorf("of run.json: %+v, %v", again.Config.Reward.Components, again.Bad)
	}
	for _, tt := range []struct{ text, want string }{
		{"{kind: components}", "reward.components: required if reward.kind is components"},
		{"{kind: components, components: {}}", "reward.components: required"},
		{"{components: [a]}", "reward.components: must be a mapping"},
		{"{components: {a: exact}}", `reward.components: "a": must be a mapping with the key kind, got a string`},
		{"{components: {a: {kind: exact, wieght: 2}}}", `reward.components: "a": unknown field "wieght"`},
		{"{components: {a: {kind: exact, weight: heavy}}}", `"a": weight: must be a number, got a string`},
		{"{components: {a: {kind: command, command: x}}}", `"a": command: must be a list of strings, got a string`},
		{"{components: {a: {kind: command, command: [1]}}}", `"a": command: must be a string, got a number`},
		{"{components: {a: {weight: 2}}}", `reward.components: "a": kind: "" is not one of exact, contains,`},
		{"{components: {a: {kind: components}}}", `"a": kind: "components" is not one of`},
		{"{components: {a: {kind: none}}}", `"a": kind: "none" is not one of`},
		{"{components: {a: {kind: regex}}}", `"a": pattern: required if kind is regex`},
		{"{components: {a: {kind: regex, pattern: '('}}}", `"a": pattern: error parsing regexp`},
		{"{components: {a: {kind: json}}}", `"a": path: required if kind is json`},
		{"{components: {a: {kind: command}}}", `"a": command: required if kind is command`},
		{"{components: {a: {kind: number, tolerance: -1}}}", `"a": tolerance: -1 is not a number ≥ 0`},
		{"{components: {a: {kind: number, weight: .inf}}}", "the number is not finite"},
		{"{components: {error: {kind: number}}}", `"error": this name is not allowed`},
		{"{components: {'': {kind: number}}}", `"": this name is not allowed`},
		{"{components: {a: {kind: number}, a: {kind: exact}}}", "a: "},
	} {
		if _, bad := loadedReward(t, tt.text); !strings.Contains(bad, tt.want) {
			t.Errorf("%s: %q, want %q", tt.text, bad, tt.want)
		}
	}
}

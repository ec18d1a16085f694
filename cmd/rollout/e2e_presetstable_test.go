package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rollout-rl/rollout/collector/harness"
)

// A scene is what a run of a harness has of one scenario: its rows and chains, its trained calls, its
// untrained calls by their reason, and the class of its failure.
type scene struct {
	rows, chains                        int
	trained, auxiliary, superseded, cut int
	failed                              string
}

// A scenePlace is the place of a scene in the table.
type scenePlace struct {
	harness, dialect string
	continuity       bool
	scenario         string
}

// varies reports whether a scene has one row or two. opencode sometimes keeps a cut answer in its history.
// Then a new row begins. The table has the larger number.
func (p scenePlace) varies() bool { return p.harness == "opencode" && p.scenario == "cut" }

// usual returns got with the numbers of want that can differ between two runs. If a subagent works in the
// background, its end decides whether the main agent asks once more or once less. The ids of every call are
// compared with the engine's log in any case.
func (p scenePlace) usual(got, want scene) scene {
	if p.varies() && got.rows == 1 {
		got.rows = 2
	}
	if d := got.trained - want.trained; p.scenario == "subagent" && (d == 1 || d == -1) {
		got.trained = want.trained
	}
	return got
}

// A sceneTable has the scenes of all harnesses. testdata/harnesses.txt is its text.
type sceneTable map[scenePlace]scene

var (
	tableFile   = filepath.Join("testdata", "harnesses.txt")
	tableColumn = strings.Fields("harness engine continuity scenario rows chains trained auxiliary superseded cut failed")
)

func readTable(t *testing.T) sceneTable {
	t.Helper()
	table := sceneTable{}
	for i, line := range strings.Split(strings.TrimSpace(string(must(os.ReadFile(tableFile))(t))), "\n") {
		fields := strings.Fields(line)
		if len(fields) != len(tableColumn) {
			t.Fatalf("%s:%d: %d columns, want %d", tableFile, i+1, len(fields), len(tableColumn))
		}
		if i == 0 {
			continue
		}
		var at scenePlace
		var s scene
		_, err := fmt.Sscan(line, &at.harness, &at.dialect, &at.continuity, &at.scenario,
			&s.rows, &s.chains, &s.trained, &s.auxiliary, &s.superseded, &s.cut, &s.failed)
		noError(t, err)
		s.failed = strings.TrimPrefix(s.failed, "-")
		table[at] = s
	}
	return table
}

func (table sceneTable) text() []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(tableColumn, "\t"))
	for _, name := range harness.PresetNames() {
		for _, dialect := range dialects {
			for _, continuity := range []bool{false, true} {
				for _, s := range scenarios {
					sc, ok := table[scenePlace{name, dialect, continuity, s.name}]
					if !ok {
						continue
					}
					failed := sc.failed
					if failed == "" {
						failed = "-"
					}
					fmt.Fprintln(w, strings.Join(strings.Fields(fmt.Sprint(name, " ", dialect, " ", continuity, " ", s.name, " ",
						sc.rows, sc.chains, sc.trained, sc.auxiliary, sc.superseded, sc.cut, " ", failed)), "\t"))
				}
			}
		}
	}
	_ = w.Flush() // a buffer has no errors
	return b.Bytes()
}

// cell returns the rows of a harness in a scenario: 3 → 1 means three rows without continuity and one
// with it. If the engines differ, the cell has the numbers of each.
func (table sceneTable) cell(name, scenario string) string {
	var texts []string
	for _, dialect := range dialects {
		var rows [2]string
		for i, continuity := range []bool{false, true} {
			at := scenePlace{name, dialect, continuity, scenario}
			sc := table[at]
			rows[i] = fmt.Sprint(sc.rows)
			if at.varies() {
				rows[i] = "1 or 2"
			}
			if sc.failed != "" {
				rows[i] = "`" + sc.failed + "`"
			}
		}
		text := rows[0]
		if rows[1] != rows[0] {
			text += " → " + rows[1]
		}
		texts = append(texts, text)
	}
	vllm, sglang := texts[0], texts[1:]
	switch {
	case vllm == sglang[0] && vllm == sglang[1]:
		return vllm
	case sglang[0] == sglang[1]:
		return "vLLM " + vllm + ", SGLang " + sglang[0]
	}
	return "vLLM " + vllm + ", SGLang with `sglext` " + sglang[0] + ", SGLang " + sglang[1]
}

// page returns the table for the page of harnesses.
func (table sceneTable) page() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range scenarios {
		b.WriteString(" " + s.title + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", 1+len(scenarios)) + "\n")
	for _, name := range harness.PresetNames() {
		b.WriteString("| `" + name + "` |")
		for _, s := range scenarios {
			b.WriteString(" " + table.cell(name, s.name) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The table on the page of harnesses is the table that TestHarnesses compares with real harnesses. It is
// complete. With -update, the test rewrites the table on the page.
func TestHarnessPageTable(t *testing.T) {
	t.Parallel()
	table := readTable(t)
	if want := len(harness.PresetNames()) * len(dialects) * 2 * len(scenarios); len(table) != want {
		t.Errorf("%s has %d scenes, want %d: run make e2e-harness with -update", tableFile, len(table), want)
	}
	if want := string(table.text()); want != string(must(os.ReadFile(tableFile))(t)) {
		t.Errorf("%s is not in order, want\n%s", tableFile, want)
	}
	const name = "collector/harness/README.md"
	lines := strings.SplitAfter(page(t, name), "\n")
	begin := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| | "+scenarios[0].title+" |") })
	if begin < 0 {
		t.Fatalf("%s has no table of rows", name)
	}
	end := begin + slices.IndexFunc(lines[begin:], func(line string) bool { return !strings.HasPrefix(line, "|") })
	got, want := strings.Join(lines[begin:end], ""), table.page()
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s has the table\n%s\nwant\n%s\n-update changes it", name, got, want)
	}
	text := strings.Join(lines[:begin], "") + want + strings.Join(lines[end:], "")
	noError(t, os.WriteFile(filepath.Join(repository, filepath.FromSlash(name)), []byte(text), 0o666))
}

package chat_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

var (
	update       = flag.Bool("update", false, "rewrite testdata/chat-templates/transformers.json.gz with the environments of make transformers")
	applications = flag.Int("applications", 40, "random conversations per template in TestAgainstTransformers")
)

// packages lists the releases to compare with and the rules that each follows.
var packages = []struct {
	version string
	rules   chat.Transformers
}{
	{"4.57.6", chat.Transformers457},
	{"5.20.2", chat.Transformers50},
	{"5.21.1", chat.Transformers521},
	{"5.22.2", chat.Transformers5222},
	{"5.23.0", chat.Transformers523},
}

// An application is the input of apply_chat_template; see apply_chat_template.py. Four of its
// fields are JSON text, to keep the notation of numbers and NaN.
type application struct {
	Name                 string `json:"name,omitempty"` // of the template; otherwise Src is its text
	Src                  string `json:"src,omitempty"`
	Messages             string `json:"messages,omitempty"`
	Tools                string `json:"tools,omitempty"`
	Documents            string `json:"documents,omitempty"`
	Vars                 string `json:"vars,omitempty"`
	AddGenerationPrompt  bool   `json:"add_generation_prompt,omitempty"`
	ContinueFinalMessage string `json:"continue_final_message,omitempty"`
	Enum                 bool   `json:"enum,omitempty"`
}

// newApplication returns a random conversation with features that the releases treat differently:
// None at every depth, reasoning under several names, a final message to continue.
func (k *conversationGen) newApplication() application {
	k.unsure = true
	a := application{Messages: k.messages(), Enum: k.one(3)}
	switch k.IntN(3) {
	case 0:
		a.AddGenerationPrompt = true
	case 1:
		a.ContinueFinalMessage = pick(k.Rand, "content", "content", "content", "reasoning_content", "thinking", "reasoning", "name")
		a.AddGenerationPrompt = k.one(20)
	}
	if k.one(3) {
		a.Tools = list([]string{k.tool(), k.tool()})
	}
	if k.one(12) {
		a.Documents = pick(k.Rand, `[{"title": "T", "text": null}]`, `[]`, `null`, `["text"]`)
	}
	var vars object
	for _, name := range []string{"enable_thinking", "thinking", "keep_reasoning", "reasoning_effort", "preserve_thinking", "clear_thinking"} {
		if k.one(8) {
			vars.add(name, pick(k.Rand, "true", "false", "null", `"high"`))
		}
	}
	a.Vars = vars.String()
	return a
}

// newApplications combines each template with the same n random conversations.
func newApplications(r *rand.Rand, sources map[string]string, n int) []application {
	k := &conversationGen{Rand: r}
	talks := make([]application, n)
	for i := range talks {
		talks[i] = k.newApplication()
	}
	var apps []application
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, a := range talks {
			a.Name = name
			apps = append(apps, a)
		}
	}
	return apps
}

// storedContinued combines each template with the stored conversations, with an open final message.
func storedContinued(tb testing.TB, sources map[string]string) []application {
	tb.Helper()
	cases := stored[map[string]map[string]json.RawMessage](tb, "cases.json.gz")
	var apps []application
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		for _, id := range slices.Sorted(maps.Keys(cases)) {
			a := application{Name: name, ContinueFinalMessage: "content"}
			var vars object
			for _, key := range slices.Sorted(maps.Keys(cases[id])) {
				var line bytes.Buffer
				if err := json.Compact(&line, cases[id][key]); err != nil {
					tb.Fatal(err)
				}
				switch js := line.String(); key {
				case "messages":
					a.Messages = js
				case "tools":
					a.Tools = js
				case "add_generation_prompt": // excluded by ContinueFinalMessage
				default:
					vars.add(key, js)
				}
			}
			a.Vars = vars.String()
			apps = append(apps, a)
		}
	}
	return apps
}

func (a *application) line(tb testing.TB) []byte {
	tb.Helper()
	plain := *a
	plain.Messages, plain.Tools, plain.Documents, plain.Vars = "", "", "", ""
	b, err := json.Marshal(plain)
	if err != nil {
		tb.Fatal(err)
	}
	b = append(b[:len(b)-1], `,"messages":`+a.Messages...)
	for _, part := range []struct{ name, js string }{{"tools", a.Tools}, {"documents", a.Documents}, {"vars", a.Vars}} {
		if part.js != "" {
			b = append(b, `,"`+part.name+`":`+part.js...)
		}
	}
	return bytes.Replace(append(b, '}'), []byte("{,"), []byte("{"), 1)
}

func (a *application) input(tb testing.TB, rules chat.Transformers) chat.Input {
	tb.Helper()
	read := func(js string) chat.Value {
		if js == "" {
			return chat.Value{}
		}
		v, err := chat.FromJSONText(js)
		if err != nil {
			tb.Fatalf("FromJSON(%.200s) = %v", js, err)
		}
		return v
	}
	in := chat.Input{
		Messages: read(a.Messages), Tools: read(a.Tools), Documents: read(a.Documents), Extra: read(a.Vars).Map(),
		AddGenerationPrompt: a.AddGenerationPrompt, ContinueFinalMessage: a.ContinueFinalMessage, Transformers: rules, Now: fixedNow(),
	}
	if a.Enum {
		in.Messages = withRoles(in.Messages)
	}
	return in
}

// withRoles replaces the roles of messages with Letta's enum members.
func withRoles(messages chat.Value) chat.Value {
	roles := []string{"assistant", "user", "tool", "function", "system", "approval", "summary"}
	var out []chat.Value
	for _, m := range messages.Items() {
		to := chat.NewMap(m.Map().Len())
		for i := range m.Map().Len() {
			k, v := m.Map().At(i)
			key, _ := k.Text()
			if text, _ := v.Text(); key == "role" && slices.Contains(roles, text) {
				v = chat.EnumValue("MessageRole."+text, text)
			}
			to.Set(key, v)
		}
		out = append(out, chat.MapValue(to))
	}
	return chat.ListValue(out...)
}

func askTransformers(t *testing.T, dir, version string, sources map[string]string, apps []application) []answer {
	t.Helper()
	lines := make([][]byte, len(apps))
	for i := range apps {
		lines[i] = append(apps[i].line(t), '\n')
	}
	answers, err := answersOf(t, filepath.Join(dir, version, "bin", "python"), "apply_chat_template.py", sources, lines)
	if err != nil || len(answers) != len(apps) {
		t.Fatalf("transformers %s: %d answers to %d requests: %v", version, len(answers), len(apps), err)
	}
	return answers
}

// checkApplications renders all applications here and compares them with the answers, by version.
func checkApplications(t *testing.T, sources map[string]string, apps []application, want map[string][]answer) {
	t.Helper()
	parsed := map[string]*chat.Template{}
	n, texts, bad, apart := 0, 0, 0, 0
	for i := range apps {
		a := &apps[i]
		src := cmp.Or(sources[a.Name], a.Src)
		if parsed[src] == nil {
			parsed[src] = parse(t, a.Name, src, testOptions())
		}
		for _, p := range packages {
			if p.version == "4.57.6" && a.ContinueFinalMessage != "" && a.ContinueFinalMessage != "content" {
				continue // it treats every name as content
			}
			n++
			theirs := want[p.version][i]
			if theirs.Out != nil {
				texts++
			}
			if !same(theirs, want[packages[1].version][i]) {
				apart++
			}
			out, err := parsed[src].Render(nil, a.input(t, p.rules))
			if d := compare(theirs, string(out), err); d != "" {
				if bad++; bad <= 10 {
					t.Errorf("transformers %s: %s\n%s", p.version, d, a.line(t))
				}
			}
		}
	}
	t.Logf("%d renders, %d with output, in %d the releases are apart; %d differ from Python", n, texts, apart, bad)
	if texts < n/5 || apart < n/50 {
		t.Errorf("only %d of %d renders have output, and in %d the releases are apart: the conversations show too little", texts, n, apart)
	}
}

func same(a, b answer) bool {
	return (a.Out == nil) == (b.Out == nil) && (a.Out == nil || *a.Out == *b.Out)
}

// A storedApplications is the content of transformers.json.gz.
type storedApplications struct {
	Applications []application `json:"applications"`
	// Answers is keyed by version. An answer that equals the previous version's is null.
	Answers map[string][]*answer `json:"answers"`
}

const transformersFile = "transformers.json.gz"

// TestTransformers renders the stored conversations by the rules of each release. The output equals
// the output of the release's apply_chat_template, byte for byte.
func TestTransformers(t *testing.T) {
	t.Parallel()
	sources := templates(t)
	if *update {
		storeApplications(t, sources)
	}
	f := stored[storedApplications](t, transformersFile)
	want := map[string][]answer{}
	for j, p := range packages {
		for i, a := range f.Answers[p.version] {
			if a == nil {
				a = &want[packages[j-1].version][i]
			}
			want[p.version] = append(want[p.version], *a)
		}
	}
	checkApplications(t, sources, f.Applications, want)
}

// TestAgainstTransformers renders random conversations with all stored templates, here and with
// apply_chat_template of each release.
func TestAgainstTransformers(t *testing.T) {
	t.Parallel()
	dir := transformersDir(t)
	sources := templates(t)
	apps := slices.Concat(ruleApplications(), storedContinued(t, sources), newApplications(source(t), sources, *applications))
	want := map[string][]answer{}
	for _, p := range packages {
		want[p.version] = askTransformers(t, dir, p.version, sources, apps)
	}
	checkApplications(t, sources, apps, want)
}

// transformersDir returns the environments of make transformers, or skips the test.
func transformersDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ROLLOUT_TRANSFORMERS")
	if dir == "" {
		t.Skip("ROLLOUT_TRANSFORMERS is not set: make transformers creates the environments in .build/transformers")
	}
	return dir
}

// storeApplications renders with the releases and stores the answers.
func storeApplications(t *testing.T, sources map[string]string) {
	t.Helper()
	dir := transformersDir(t)
	apps := slices.Concat(ruleApplications(), storedContinued(t, sources), newApplications(rand.New(rand.NewPCG(523, 1)), sources, 24))
	f := storedApplications{Applications: apps, Answers: map[string][]*answer{}}
	var before []answer
	for _, p := range packages {
		now := askTransformers(t, dir, p.version, sources, apps)
		for i := range now {
			a := &now[i]
			if before != nil && same(before[i], *a) {
				a = nil
			}
			f.Answers[p.version] = append(f.Answers[p.version], a)
		}
		before = now
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(z).Encode(f); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("..", "..", "testdata", "chat-templates", transformersFile), buf.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

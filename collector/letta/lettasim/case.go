package lettasim

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/rollout-rl/rollout/tokenize"
)

// A Case is the recorded life of one agent. It contains the agent's state, the system message, and
// every exchange with the server runs and engine calls that followed. A Case is immutable.
type Case struct {
	// Name is the file name without extensions. Task ids refer to the case by this name.
	Name  string
	rec   Recording
	lives [2][2]func() *life // with and without input ids, with and without traced ids
}

// A Recording is the content of a case file. testdata/README.md describes the fields.
type Recording struct {
	Tools        []json.RawMessage `json:"tools"`
	Agent        json.RawMessage   `json:"agent"`
	System       json.RawMessage   `json:"system"`
	Conversation json.RawMessage   `json:"conversation"`
	Exchanges    []struct {
		Request struct {
			Method, Path string
			Body         json.RawMessage
		}
		Response struct {
			Status  int
			Headers map[string]string
			Body    json.RawMessage
		}
		ModelCalls []struct {
			Path     string
			InputIDs []int32 `json:"input_ids"`
			Status   int
			Response json.RawMessage
		} `json:"model_calls"`
		Runs []struct {
			Run                     json.RawMessage
			Steps, Messages, Traces []json.RawMessage
		}
	}
}

// LoadCases reads all recorded cases (.json and .json.gz) in a folder and sorts them by name. It
// skips files without exchanges.
func LoadCases(fsys fs.FS, dir string) ([]*Case, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("lettasim: cases: %w", err)
	}
	var cases []*Case
	for _, e := range entries {
		base, zipped := strings.CutSuffix(e.Name(), ".gz")
		name, ok := strings.CutSuffix(base, ".json")
		if e.IsDir() || !ok {
			continue
		}
		c, err := loadCase(fsys, path.Join(dir, e.Name()), name, zipped)
		if err != nil {
			return nil, fmt.Errorf("lettasim: case %s: %w", e.Name(), err)
		}
		if len(c.rec.Exchanges) > 0 {
			cases = append(cases, c)
		}
	}
	sort.Slice(cases, func(i, j int) bool { return cases[i].Name < cases[j].Name })
	return cases, nil
}

func loadCase(fsys fs.FS, file, name string, zipped bool) (*Case, error) {
	f, err := fsys.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	var in io.Reader = f
	if zipped {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: name}
	if err := json.Unmarshal(nanToNull(b), &c.rec); err != nil {
		return nil, err
	}
	if len(c.rec.Exchanges) == 0 {
		return c, nil
	}
	if _, err := parseObject(c.rec.Agent); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	if len(split(c.rec.System)) == 0 {
		return nil, errors.New("system: want a list of messages")
	}
	for i, x := range c.rec.Exchanges {
		for j, r := range x.Runs {
			if _, err := parseObject(r.Run); err != nil {
				return nil, fmt.Errorf("exchange %d: run %d: %w", i, j, err)
			}
			if len(r.Traces) > len(r.Steps) {
				return nil, fmt.Errorf("exchange %d: run %d has more traces (%d) than steps (%d)", i, j, len(r.Traces), len(r.Steps))
			}
		}
	}
	for i := range c.lives {
		for j := range c.lives[i] {
			c.lives[i][j] = sync.OnceValue(func() *life { return newLife(c, i == 1, j == 1) })
		}
	}
	return c, nil
}

var nonFinite = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|NaN|-?Infinity`)

// nanToNull replaces NaN, Infinity and -Infinity, which Python's JSON encoder prints, with null. An
// engine's answers can contain these values, but the server's answers never do.
func nanToNull(b []byte) []byte {
	if !bytes.Contains(b, []byte("NaN")) && !bytes.Contains(b, []byte("Infinity")) {
		return b
	}
	return nonFinite.ReplaceAllFunc(b, func(word []byte) []byte {
		if word[0] == '"' {
			return word
		}
		return []byte("null")
	})
}

// A life is a case that has been prepared for replay, with or without prompt ids.
type life struct {
	name         string
	agent        template
	system       template
	conversation template // empty if the case has no conversation
	exchanges    []exchange
	ids          idTable
}

type exchange struct {
	status      int
	contentType string
	body        template
	runs        []recordedRun
	sampled     int
	digest      string
	calls       []recordedCall
}

// A recordedCall contains the ids of one engine call.
type recordedCall struct{ prompt, output []int32 }

// A recordedRun is one server run in an exchange. The lists traces and steps have the same length.
// If a step has no trace, its template in traces is empty.
type recordedRun struct {
	run      template
	steps    []template
	messages []template
	traces   []template
}

// life returns the life of the case. Servers share it.
func (c *Case) life(inputIDs, tracedIDs bool) *life {
	index := map[bool]int{true: 1}
	return c.lives[index[inputIDs]][index[tracedIDs]]()
}

func newLife(c *Case, inputIDs, tracedIDs bool) *life {
	l := &life{name: c.Name}
	l.agent = newTemplate(c.rec.Agent, &l.ids)
	l.system = newTemplate(c.rec.System, &l.ids)
	if o, err := parseObject(c.rec.Conversation); err == nil && len(o.keys) > 0 {
		l.conversation = newTemplate(c.rec.Conversation, &l.ids)
	}
	for _, x := range c.rec.Exchanges {
		e := exchange{status: x.Response.Status, contentType: cmp.Or(x.Response.Headers["content-type"], "application/json")}
		body := []byte(x.Response.Body)
		var prompts [][]int32
		for _, m := range x.ModelCalls {
			var reply struct {
				OutputIDs []int32 `json:"output_ids"`
			}
			if m.Path == "/generate" && m.Status == 200 && json.Unmarshal(m.Response, &reply) == nil && len(reply.OutputIDs) > 0 {
				prompts = append(prompts, m.InputIDs)
				e.calls = append(e.calls, recordedCall{m.InputIDs, reply.OutputIDs})
			}
		}
		if inputIDs {
			body = withInputIDs(body, prompts)
		}
		e.sampled, e.digest = digestTurns(body)
		e.body = newTemplate(body, &l.ids)
		traced := prompts
		if !tracedIDs {
			traced = nil
		}
		for _, r := range x.Runs {
			rr := recordedRun{run: newTemplate(r.Run, &l.ids)}
			for i, step := range r.Steps {
				rr.steps = append(rr.steps, newTemplate(step, &l.ids))
				var prompt []int32
				if len(traced) > 0 && sampledStep(step) {
					prompt, traced = traced[0], traced[1:]
				}
				var trace template
				if i < len(r.Traces) && !bytes.Equal(r.Traces[i], []byte("null")) {
					trace = newTemplate(withTracedPrompt(r.Traces[i], prompt), &l.ids)
				}
				rr.traces = append(rr.traces, trace)
			}
			for _, m := range r.Messages {
				rr.messages = append(rr.messages, newTemplate(m, &l.ids))
			}
			e.runs = append(e.runs, rr)
		}
		l.exchanges = append(l.exchanges, e)
	}
	return l
}

// withInputIDs returns the body with the k-th prompt added as the last member of the k-th assistant
// turn.
func withInputIDs(body []byte, prompts [][]int32) []byte {
	o, err := parseObject(body)
	if err != nil || !bytes.HasPrefix(o.values["turns"], []byte("[")) {
		return body
	}
	turns := split(o.values["turns"])
	for i, t := range turns {
		if len(prompts) > 0 && member(t, "role") == "assistant" {
			turns[i], prompts = withPrompt(t, prompts[0]), prompts[1:]
		}
	}
	o.set("turns", array(turns))
	return o.append(nil)
}

// withPrompt returns the object with the prompt added as its last member.
func withPrompt(object []byte, prompt []int32) []byte {
	out := append(slices.Clone(object[:len(object)-1]), `,"input_ids":`...)
	return append(tokenize.AppendIDs(out, prompt), '}')
}

func sampledStep(step []byte) bool {
	var s struct {
		Completion int `json:"completion_tokens"`
	}
	return json.Unmarshal(step, &s) == nil && s.Completion > 0
}

// withTracedPrompt returns the trace with the prompt added as the last member of its request.
func withTracedPrompt(trace []byte, prompt []int32) []byte {
	o, err := parseObject(trace)
	if prompt == nil || err != nil || !bytes.HasPrefix(o.values["request_json"], []byte("{")) {
		return trace
	}
	o.set("request_json", withPrompt(o.values["request_json"], prompt))
	return o.append(nil)
}

func digestTurns(body []byte) (int, string) {
	var answer struct {
		Turns []struct {
			Output   []int32  `json:"output_ids"`
			Logprobs [][]*any `json:"output_token_logprobs"`
		}
	}
	if json.Unmarshal(body, &answer) != nil || answer.Turns == nil {
		return 0, ""
	}
	var d Digest
	n := 0
	for _, t := range answer.Turns {
		lps := make([]float32, len(t.Logprobs))
		for i, triple := range t.Logprobs {
			lps[i] = float32(math.NaN())
			if len(triple) > 0 && triple[0] != nil {
				if f, ok := (*triple[0]).(float64); ok {
					lps[i] = float32(f)
				}
			}
		}
		d.Append(t.Output, lps)
		n += len(t.Output)
	}
	return n, d.String()
}

//go:build linux

package cases_test

import (
	"bytes"
	_ "embed"
	"fmt"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// conformChecks are the compared behaviors. The file explains its form.
//
//go:embed testdata/conform.txt
var conformChecks string

// unprovenList has the simulated routes, settings and faults that no check compares.
//
//go:embed testdata/unproven.txt
var unprovenList string

// A check is one behavior of one endpoint.
type check struct {
	endpoint, behavior string
	steps              []string
}

func checks() (list []check) {
	endpoint := ""
	for line := range strings.Lines(conformChecks) {
		text := strings.TrimSpace(line)
		switch indent := strings.Index(line, text); {
		case text == "" || text[0] == '#':
		case indent == 0:
			endpoint = text
		case indent == 2:
			list = append(list, check{endpoint: endpoint, behavior: text})
		default:
			c := &list[len(list)-1]
			c.steps = append(c.steps, text)
		}
	}
	return list
}

// unproven returns the reasons of unprovenList.
func unproven() map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(unprovenList) {
		if what, reason, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			reasons[what] = reason
		}
	}
	return reasons
}

var (
	aVariable = regexp.MustCompile(`\$[A-Z][A-Z0-9-]*`)
	aRequest  = regexp.MustCompile(`^(?:(.+?): |(unknown) )?(GET|POST|PUT|PATCH|DELETE) (\S+)(?: (.+))?$`)
	aKind     = regexp.MustCompile(`\{(\w+)\}`)
)

// unknownID returns an id of this kind that no object has.
func unknownID(kind string) string { return kind + "-00000000-0000-4000-8000-000000000001" }

func (s *side) step(text string) {
	s.t.Helper()
	line := aVariable.ReplaceAllStringFunc(text, func(name string) string {
		id, ok := s.id[name[1:]]
		if !ok {
			s.t.Fatalf("%s: there is no %s", text, name)
		}
		return id
	})
	if m := aRequest.FindStringSubmatch(line); m != nil {
		label, unknown, method, path, body := m[1], m[2], m[3], m[4], m[5]
		if strings.HasPrefix(body, `"`) {
			body = `{"messages":[{"role":"user","content":` + body + `}]}`
		}
		switch {
		case unknown != "":
			s.shape("unknown id", method, aKind.ReplaceAllString(path, unknownID("$1")), body)
			s.shape("malformed id", method, aKind.ReplaceAllString(path, "nonsense"), body)
		case label != "":
			s.shape(label, method, path, body)
		default:
			s.label, s.last = text, s.do(method, path, body)
		}
		return
	}
	if name, path, ok := strings.Cut(line, " = "); ok {
		id := s.last.text(path)
		if id == "" {
			s.t.Errorf("%s: %s: the answer has no %s: %.300s", s.url, s.label, path, s.last.body)
		}
		s.named(id, name)
		return
	}
	verb, rest, _ := strings.Cut(line, " ")
	first, second, _ := strings.Cut(rest, " ")
	switch verb {
	case "ok":
		if s.last.status != http.StatusOK {
			s.t.Fatalf("%s: %s: %d %s", s.url, s.label, s.last.status, s.last.body)
		}
	case "=":
		for path := range strings.SplitSeq(rest, ", ") {
			s.fact("%s: %s is %s", s.label, path, s.common(fmt.Sprint(s.last.value(path))))
		}
	case "has":
		s.fact("%s: has %s: %t", s.label, rest, s.last.value(rest) != nil)
	case "each":
		var values []any
		list, _ := s.last.value(first).([]any)
		for _, one := range list {
			o, _ := one.(map[string]any)
			values = append(values, o[second])
		}
		s.fact("%s: %s of %s: %v", s.label, second, first, values)
	case "status":
		s.fact("%s: status %d", s.label, s.last.status)
	case "count":
		s.fact("%s: status %d, %d elements", s.label, s.last.status, len(s.last.ids()))
	case "names":
		var names []string
		for _, id := range s.last.ids() {
			names = append(names, s.names[id])
		}
		s.fact("%s: %v", s.label, names)
	case "wait":
		busy := []string{"null", "created", "running"}
		for range 200 {
			x := s.do(http.MethodGet, rest, "")
			s.label, s.last = text, x
			if !slices.Contains(busy, string(x.body)) && !slices.Contains(busy, x.text("status")) {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	case "paging":
		s.paging(first, second)
	case "header":
		s.header.Set(first, second)
	case "do":
		stepFuncs[rest](s)
	default:
		s.t.Fatalf("unknown step %q", text)
	}
}

// stepFuncs has the steps that are functions.
var stepFuncs = map[string]func(s *side){
	"enable reasoner": func(s *side) {
		config, _ := s.last.value("llm_config").(map[string]any)
		config["enable_reasoner"] = true
		s.shape("llm_config", http.MethodPatch, "/v1/agents/"+s.id["AGENT"], string(object(s.t, map[string]any{"llm_config": config})))
	},
	"read messages": func(s *side) {
		ids := s.do(http.MethodGet, "/v1/runs/"+s.id["RUN"]+"/messages", "").ids()
		for i, id := range ids[:min(3, len(ids))] {
			s.shape(fmt.Sprint("message ", i), http.MethodGet, "/v1/messages/"+id, "")
		}
	},
	"export": func(s *side) {
		x := s.do(http.MethodGet, "/v1/agents/"+s.id["RUNS"]+"/export", "")
		s.fact("status %d, %T, %T", x.status, x.value("agents.0.system"), x.value("agents.0.messages.0.role"))
		s.id["FILE"] = string(x.body)
	},
	"import": func(s *side) {
		s.label, s.last = "import", s.upload(s.id["FILE"], map[string]string{"name": "conform imported", "append_copy_suffix": "false"})
		s.shapeOf("imported", s.last)
	},
	"import nonsense": func(s *side) {
		s.fact("no JSON: status %d", s.upload("{", nil).status)
		s.fact("no agent file: status %d", s.upload("{}", nil).status)
	},
	"read stream": func(s *side) {
		x := s.last
		media, _, _ := strings.Cut(x.header.Get("Content-Type"), ";")
		s.fact("status %d, %s", x.status, media)
		for line := range bytes.SplitSeq(x.body, []byte("\n")) {
			data, ok := bytes.CutPrefix(line, []byte("data: "))
			if !ok || bytes.Equal(data, []byte("[DONE]")) {
				s.fact("line: %s", line)
				continue
			}
			event := exchanged{http.StatusOK, nil, data}
			if kind := event.text("message_type"); kind != "ping" {
				s.shapeOf(kind, event)
			}
		}
	},
}

func (s *side) upload(file string, fields map[string]string) exchanged {
	s.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part := must(form.CreateFormFile("file", "agent.af"))(s.t)
	_, _ = part.Write([]byte(file))
	for name, value := range fields {
		_ = form.WriteField(name, value)
	}
	_ = form.Close()
	return s.send(http.MethodPost, "/v1/agents/import", form.FormDataContentType(), &body)
}

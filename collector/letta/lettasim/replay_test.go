package lettasim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// TestReplayIsByteIdentical replays every life with its own ids and compares everything recorded.
func TestReplayIsByteIdentical(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t), KeepIDs: true})
	for name, rec := range readRecordings(t) {
		t.Run(name, func(t *testing.T) {
			same := func(what string, got, want []byte) {
				t.Helper()
				if !bytes.Equal(got, want) {
					t.Errorf("%s differs:\n got %.300s\nwant %.300s", what, got, want)
				}
			}
			id, state := s.create(name, 0, 1)
			if want := field(t, rec.Agent, "id"); id != want {
				t.Fatalf("agent %s, want %s", id, want)
			}
			for _, key := range []string{"llm_config", "tools", "system", "message_ids", "timezone", "created_at"} {
				same("agent."+key, []byte(field(t, state, key)), []byte(field(t, rec.Agent, key)))
			}
			if rec.Conversation != nil {
				c := s.do(200, "POST", "/v1/conversations/?agent_id="+id, "")
				same("conversation", []byte(field(t, c, "id")), []byte(field(t, rec.Conversation, "id")))
			}
			for _, systemID := range []string{first(t, rec.Agent, "message_ids"), field(t, list(t, rec.System)[0], "id")} {
				if rec.Conversation == nil || systemID != first(t, rec.Agent, "message_ids") {
					same("system", s.do(200, "GET", "/v1/messages/"+systemID, ""), rec.System)
				}
			}
			for i, x := range rec.Exchanges {
				path := x.Request.Path
				if name == "unknown-agent" {
					same("another agent", s.do(404, "POST", path, string(x.Request.Body)), x.Response.Body)
					path = "/v1/agents/" + id + "/messages"
				}
				got := s.do(x.Response.Status, "POST", path, string(x.Request.Body))
				same(fmt.Sprintf("exchange %d", i), got, x.Response.Body)
				for _, r := range x.Runs {
					run := "/v1/runs/" + field(t, r.Run, "id")
					sameObject(t, "run", s.do(200, "GET", run, ""), r.Run)
					steps := list(t, s.do(200, "GET", run+"/steps?order=asc&limit=1000", ""))
					messages := list(t, s.do(200, "GET", run+"/messages?order=asc&limit=1000", ""))
					if len(steps) != len(r.Steps) || len(messages) != len(r.Messages) {
						t.Fatalf("exchange %d: %d steps, %d messages; want %d, %d", i, len(steps), len(messages), len(r.Steps), len(r.Messages))
					}
					for k := range steps {
						sameObject(t, "step", steps[k], r.Steps[k])
						step := "/v1/steps/" + field(t, r.Steps[k], "id")
						sameObject(t, "step", s.do(200, "GET", step, ""), r.Steps[k])
						want := []byte("null")
						if k < len(r.Traces) {
							want = r.Traces[k]
						}
						same("trace", s.do(200, "GET", step+"/trace", ""), want)
					}
					for k := range messages {
						same("message", messages[k], r.Messages[k])
					}
				}
			}
			more := s.do(400, "POST", "/v1/agents/"+id+"/messages", sendBody)
			if !strings.Contains(field(t, more, "detail"), "case "+name+" has") {
				t.Errorf("a send too many = %s", more)
			}
			s.do(409, "POST", "/v1/agents/", fmt.Sprintf(`{"model":"sglang//models/qwen3","metadata":{"rollout":{"task_id":%q}}}`, name))
			s.do(200, "DELETE", "/v1/agents/"+id, "")
		})
	}
}

// sameObject compares without white space, because the server formats runs and steps again.
func sameObject(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var a, b bytes.Buffer
	if json.Compact(&a, got) != nil || json.Compact(&b, want) != nil || a.String() != b.String() {
		t.Errorf("%s differs:\n got %.400s\nwant %.400s", what, got, want)
	}
}

func first(t *testing.T, object []byte, key string) string {
	t.Helper()
	return decode[[]string](t, member(t, object, key))[0]
}

var anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// TestRewrittenIDs samples every case several times. Bodies can differ from the recording only in
// UUIDs, and not in turns, the system text, or the engine's input in a trace.
func TestRewrittenIDs(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t)})
	for name, rec := range readRecordings(t) {
		t.Run(name, func(t *testing.T) {
			runs := map[string]bool{}
			for sample := range 3 {
				id, state := s.create(name+"#x", sample, 1)
				if id == field(t, rec.Agent, "id") {
					t.Fatal("the agent has its recorded id")
				}
				system := list(t, s.do(200, "GET", "/v1/messages/"+first(t, state, "message_ids"), ""))[0]
				if got := field(t, system, "id"); got == field(t, list(t, rec.System)[0], "id") || rec.Conversation == nil && got != first(t, state, "message_ids") {
					t.Errorf("system message %s, message_ids %s", got, first(t, state, "message_ids"))
				}
				if got, want := field(t, system, "content"), field(t, list(t, rec.System)[0], "content"); got != want {
					t.Errorf("system text = %q, want %q", got, want)
				}
				for i, x := range rec.Exchanges {
					got := s.do(x.Response.Status, "POST", "/v1/agents/"+id+"/messages", string(x.Request.Body))
					masked := anyUUID.ReplaceAllLiteral(got, nil)
					if want := anyUUID.ReplaceAllLiteral(x.Response.Body, nil); len(got) != len(x.Response.Body) || !bytes.Equal(masked, want) {
						t.Fatalf("exchange %d differs in more than uuids", i)
					}
					if x.Response.Status == 200 && !bytes.Equal(member(t, got, "turns"), member(t, x.Response.Body, "turns")) {
						t.Errorf("exchange %d: turns differ", i)
					}
					if len(x.Runs) == 0 {
						continue
					}
					if recorded := field(t, x.Runs[0].Run, "id"); bytes.Contains(got, []byte(recorded)) {
						t.Errorf("exchange %d holds the recorded run id %s", i, recorded)
					}
					latest := list(t, s.do(200, "GET", "/v1/runs/?order=desc&limit=1&agent_id="+id, ""))
					run := field(t, latest[0], "id")
					if runs[run] {
						t.Errorf("run %s twice", run)
					}
					runs[run] = true
					for k, step := range s.steps(run) {
						trace := s.trace(step)
						if string(trace) == "null" || k >= len(x.Runs[0].Traces) {
							continue
						}
						for _, key := range []string{"request_json", "response_json"} {
							if !bytes.Equal(member(t, trace, key), member(t, x.Runs[0].Traces[k], key)) {
								t.Errorf("exchange %d trace %d: %s differs", i, k, key)
							}
						}
						if field(t, trace, "run_id") != run || field(t, trace, "agent_id") != id {
							t.Errorf("exchange %d trace %d belongs to another run or agent", i, k)
						}
					}
				}
			}
		})
	}
}

// TestReplayIsAFunctionOfTheAttempt proves that ids do not depend on the order of agents.
func TestReplayIsAFunctionOfTheAttempt(t *testing.T) {
	t.Parallel()
	cases := loadCases(t)
	bodies := func(order []int) map[int]string {
		s := start(t, lettasim.Config{Cases: cases, Seed: 3})
		out := map[int]string{}
		for _, i := range order {
			id, _ := s.create("tool", i, 1)
			out[i] = id + string(s.do(200, "POST", "/v1/agents/"+id+"/messages", sendBody))
		}
		return out
	}
	a, b := bodies([]int{0, 1, 2}), bodies([]int{2, 0, 1})
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("sample %d differs with the order", i)
		}
	}
	if a[0] == a[1] {
		t.Error("two samples have the same ids")
	}
}

// TestInputIDs proves that assistant turns have the engine's prompts and are otherwise unchanged.
func TestInputIDs(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t), InputIDs: true, KeepIDs: true})
	inserted := regexp.MustCompile(`,"input_ids":\[[0-9,]*\]\}`)
	seen := 0
	for name, rec := range readRecordings(t) {
		t.Run(name, func(t *testing.T) {
			id, _ := s.create(name, 0, 1)
			for i, x := range rec.Exchanges {
				got := s.do(x.Response.Status, "POST", "/v1/agents/"+id+"/messages", string(x.Request.Body))
				if back := inserted.ReplaceAllLiteral(got, []byte("}")); !bytes.Equal(back, x.Response.Body) {
					t.Errorf("exchange %d differs in more than input_ids", i)
				}
				var prompts [][]int32
				for _, m := range x.ModelCalls {
					if m.Path == "/generate" && m.Status == 200 {
						prompts = append(prompts, m.InputIDs)
					}
				}
				if x.Response.Status != 200 {
					continue
				}
				turns := parse(t, got).assistant()
				if len(turns) != len(prompts) {
					t.Fatalf("exchange %d: %d assistant turns, %d calls", i, len(turns), len(prompts))
				}
				for k, turn := range turns {
					seen++
					if !slices.Equal(turn.InputIDs, prompts[k]) {
						t.Errorf("exchange %d turn %d: input_ids are not what the engine was sent", i, k)
					}
				}
			}
		})
	}
	if seen < 70 {
		t.Errorf("only %d turns compared", seen)
	}
}

func TestCaseByMarker(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t)})
	id := field(t, s.do(200, "POST", "/v1/agents/", `{"model":"sglang//models/qwen3"}`), "id")
	got := s.do(200, "POST", "/v1/agents/"+id+"/messages", `{"messages":[{"role":"user","content":"Hello. [case:single]"}],"return_token_ids":true}`)
	want := readRecordings(t)["single"].Exchanges[0].Response.Body
	if !bytes.Equal(member(t, got, "turns"), member(t, want, "turns")) {
		t.Errorf("turns = %.200s", member(t, got, "turns"))
	}
}

// TestImportThenBind imports an agent and sets its metadata afterwards, as a collector with an
// agent file does.
func TestImportThenBind(t *testing.T) {
	t.Parallel()
	s := start(t, lettasim.Config{Cases: loadCases(t)})
	id, _ := s.create("any", 0, 1)
	file := s.do(200, "GET", "/v1/agents/"+id+"/export", "")
	s.header.Set("Content-Type", "multipart/form-data; boundary=X")
	post := func(status int, file []byte) []byte {
		return s.do(status, "POST", "/v1/agents/import", "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.af\"\r\n\r\n"+string(file)+
			"\r\n--X\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nmine\r\n--X--\r\n")
	}
	post(400, []byte(`{"agents":[{"llm_config":{"handle":"sglang//models/qwen3"},"tools":{}}]}`))
	imported := post(200, file)
	s.header.Del("Content-Type")
	ids := decode[[]string](t, member(t, imported, "agent_ids"))
	if len(ids) != 1 {
		t.Fatalf("import = %s", imported)
	}
	other := ids[0]
	if name := field(t, s.do(200, "GET", "/v1/agents/"+other, ""), "name"); name != "mine_copy" {
		t.Errorf("name = %q, want mine_copy", name)
	}
	s.do(200, "PATCH", "/v1/agents/"+other, `{"tags":["x"],"metadata":{"rollout":{"task_id":"multi","sample_index":4}}}`)
	rec := readRecordings(t)["multi"]
	state := s.do(200, "GET", "/v1/agents/"+other, "")
	system := list(t, s.do(200, "GET", "/v1/messages/"+first(t, state, "message_ids"), ""))[0]
	if field(t, system, "content") != field(t, list(t, rec.System)[0], "content") {
		t.Errorf("system = %s", system)
	}
	if field(t, state, "id") != other || field(t, state, "tags") != `["x"]` {
		t.Errorf("state = %.300s", state)
	}
	for i, x := range rec.Exchanges {
		got := s.do(200, "POST", "/v1/agents/"+other+"/messages", string(x.Request.Body))
		if !bytes.Equal(member(t, got, "turns"), member(t, x.Response.Body, "turns")) {
			t.Errorf("exchange %d: turns differ", i)
		}
	}
}

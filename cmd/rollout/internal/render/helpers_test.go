package render_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/collector/prompt"
	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
	"github.com/rollout-rl/rollout/tokenize/chat"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// A family is a model's tokenizer and chat template.
type family struct {
	tokenizer, template string
	stop                string // the text of the token that ends an answer
	begin               string // the text of the token that begins a prompt; empty if there is none
}

var families = []family{
	{"qwen3", "cfg_qwen3.jinja", "<|im_end|>", ""},
	{"mistral-nemo-tekken", "cfg_mistral-nemo-tekken.jinja", "</s>", "<s>"},
	{"llama3.1", "cfg_llama3.1.jinja", "<|eot_id|>", "<|begin_of_text|>"},
	{"deepseek-v3", "deepseek-ai-DeepSeek-V3.1.jinja", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"},
	{"glm4.5", "GLM-4.6.jinja", "<|user|>", ""},
	{"qwen2.5", "cfg_qwen2.5.jinja", "<|im_end|>", ""},
	{"gpt-oss", "openai-gpt-oss-120b.jinja", "<|return|>", ""},
}

var templates = sync.OnceValues(func() (map[string]string, error) {
	b, err := tokenizetest.Gunzip(filepath.Join("..", "..", "..", "..", "testdata", "chat-templates", "templates.json.gz"))
	var all map[string]string
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	return all, err
})

func (f *family) model(tb testing.TB) *prompt.Model {
	tb.Helper()
	all, err := templates()
	if err != nil {
		tb.Fatal(err)
	}
	t, err := chat.Parse(f.template, all[f.template], chat.Options{BOSToken: f.begin, EOSToken: f.stop})
	if err != nil {
		tb.Fatal(err)
	}
	return &prompt.Model{Tokenizer: bpetest.Tokenizer(tb, f.tokenizer), Template: t}
}

// small is the scripted model. Its template prints answers exactly as the scripts sample them.
func small(tb testing.TB) *prompt.Model {
	tb.Helper()
	tok, template, err := enginesim.SmallModel()
	if err != nil {
		tb.Fatal(err)
	}
	return &prompt.Model{Tokenizer: tok, Template: template}
}

func engineOf(tb testing.TB, m *prompt.Model, dialect enginesim.Dialect, stop string) *enginesim.Engine {
	tb.Helper()
	e, err := enginesim.New(enginesim.Config{Tokenizer: m.Tokenizer, Template: m.Template, Dialect: dialect, Stop: stop, Reasoning: true, MaxModelLen: 1 << 17})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// A rig is a tap with sessions in front of an engine.
type rig struct {
	proxy *proxy.Proxy
	store *store.Store
	url   string
	key   session.Key
}

func newRig(tb testing.TB, engine http.Handler, cfg proxy.Config) *rig {
	tb.Helper()
	s, err := store.Open(store.Config{Dir: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	behind := httptest.NewServer(engine)
	u, err := url.Parse(behind.URL)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Engines, cfg.Sessions = []*url.URL{u}, s
	p, err := proxy.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	front := httptest.NewServer(p)
	r := &rig{proxy: p, store: s, url: front.URL}
	tb.Cleanup(func() {
		front.Close()
		p.Close()
		behind.Close()
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	r.begin(tb)
	return r
}

// begin begins the session of the following calls.
func (r *rig) begin(tb testing.TB) {
	tb.Helper()
	status, text := r.post(tb, "/r", `{}`)
	var began struct{ Key session.Key }
	if err := json.Unmarshal([]byte(text), &began); err != nil || status != http.StatusCreated {
		tb.Fatalf("POST /r: %d %s", status, text)
	}
	r.key = began.Key
}

// end seals the session and returns its calls.
func (r *rig) end(tb testing.TB) []session.Call {
	tb.Helper()
	if status, text := r.post(tb, "/r/"+string(r.key)+"/end", `{}`); status != http.StatusOK {
		tb.Fatalf("end: %d %s", status, text)
	}
	record, err := r.store.Read(r.key.ID())
	if err != nil {
		tb.Fatal(err)
	}
	return record.Calls
}

func (r *rig) post(tb testing.TB, path, body string) (int, string) {
	tb.Helper()
	res, err := http.Post(r.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func (r *rig) call(tb testing.TB, body string) (int, string) {
	tb.Helper()
	return r.callAt(tb, "/v1/chat/completions", body)
}

func (r *rig) callAt(tb testing.TB, path, body string) (int, string) {
	tb.Helper()
	return r.post(tb, "/r/"+string(r.key)+path, body)
}

// encode returns v as JSON.
func encode(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

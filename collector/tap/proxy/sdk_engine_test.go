package proxy_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An sdkEngine is an engine with vLLM's chat completions. The last message of a request is the name
// of the answer. It returns token ids if the request asks for them. One piece of the answer is one
// token, and writes to a stream end anywhere, even inside of a character.
type sdkEngine struct {
	more []sdkAnswer // besides sdkAnswers
}

// An sdkAnswer is what the engine answers to one name.
type sdkAnswer struct {
	name, text, reasoning, finish string
	calls                         []string // the arguments of each tool call
	tools                         []string // the name of each tool call; nil means weather
	number                        string   // before the number of a tool call in its id
	piece                         int      // the number of characters of a token; 0 means 5
	seed                          uint64   // of the sizes of the writes to a stream
}

// answer returns the answer to a name. If the name begins with "cut ", the answer is cut off.
func (e sdkEngine) answer(name string) (a sdkAnswer, cut bool) {
	name, cut = strings.CutPrefix(name, "cut ")
	for _, a := range slices.Concat(sdkAnswers, e.more) {
		if a.name == name {
			return a, cut
		}
	}
	return sdkAnswers[0], cut
}

var sdkAnswers = []sdkAnswer{
	{name: "text", text: "Hello, world.\n\n", finish: "stop"},
	{name: "empty", finish: "stop"},
	{name: "unicode", text: "Grüße 日本語 👩‍👩‍👧 \u2028\u2029\u0000\"\\ e\u0301 \ufeff", finish: "stop"},
	{name: "markup", text: "data: [DONE]\n\n{\"token_ids\":[1],\"usage\":null}<|im_end|>&amp;", finish: "stop"},
	{name: "reasoning", text: "4", reasoning: " 2 plus 2\n is 4.\n", finish: "stop"},
	{name: "tool", text: "I look.", calls: []string{`{"city" : "Zürich",  "days":3.0}`}, finish: "tool_calls"},
	{name: "parallel", calls: []string{`{"city":"Bern"}`, `{}`, `{"city":"\u00dcber \"x\""}`}, finish: "tool_calls"},
	{name: "large", calls: []string{`{"city":"` + strings.Repeat("日本 x\\n", 2_500) + `"}`}, finish: "tool_calls"},
	{name: "length", text: "It was a dark and", finish: "length"},
	{name: "broken", calls: []string{`{"city":"Ber`}, finish: "length"},
}

// sdkStatuses are the error answers. Their names are the statuses.
var sdkStatuses = map[int]string{
	400: `{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 9000 tokens.","type":"BadRequestError","param":"messages","code":400}}`,
	401: `{"error":{"message":"no","type":"auth","param":null,"code":"invalid"}}`,
	404: `{"object":"error","message":"The model does not exist.","type":"NotFoundError","code":404}`,
	422: `{"detail":[{"loc":["body"],"msg":"größer"}]}`,
	429: `{"error":{"message":"slow down"}}`,
	500: `Internal Server Error`,
	503: ``,
}

func (e sdkEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/models") {
		sdkJSON(w, `{"object":"list","data":[{"id":"policy","object":"model","created":1,"owned_by":"vllm","max_model_len":4096}]}`)
		return
	}
	var body struct {
		Messages []struct{ Content string }
		Stream   bool
		Options  struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
		IDs      bool `json:"return_token_ids"`
		Logprobs bool
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Messages) == 0 {
		http.Error(w, `{"error":{"message":"bad body"}}`, http.StatusBadRequest)
		return
	}
	name := body.Messages[len(body.Messages)-1].Content
	for status, text := range sdkStatuses {
		first := r.Header.Get("X-Stainless-Retry-Count") == "0"
		if name == strconv.Itoa(status) || (name == "retry" && first && status == 500) {
			w.Header().Set("Content-Type", "application/json")
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "7")
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return
		}
	}
	a, cut := e.answer(name)
	if body.Stream {
		a.stream(w, body.Options.Usage, body.IDs, body.Logprobs, cut)
		return
	}
	a.whole(w, body.IDs, body.Logprobs)
}

func sdkJSON(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(text))
}

// pieces splits a text into tokens.
func (a sdkAnswer) pieces(text string) []string {
	var all []string
	for text != "" {
		n := 0
		for range cmp.Or(a.piece, 5) {
			_, size := utf8.DecodeRuneInString(text[n:])
			n += size
		}
		all, text = append(all, text[:n]), text[n:]
	}
	return all
}

// tokens returns the pieces of the answer in the order of a stream, as deltas.
func (a sdkAnswer) tokens() []string {
	var all []string
	for _, p := range a.pieces(a.reasoning) {
		all = append(all, `{"reasoning_content":`+quoted(p)+`}`)
	}
	for _, p := range a.pieces(a.text) {
		all = append(all, `{"content":`+quoted(p)+`}`)
	}
	for i, args := range a.calls {
		all = append(all, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":"weather","arguments":""}}]}`, i, a.id(i)))
		for _, p := range a.pieces(args) {
			all = append(all, fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quoted(p)))
		}
	}
	return append(all, `{}`) // the end-of-turn token
}

// id returns the id of a tool call.
func (a sdkAnswer) id(i int) string { return "call_" + a.number + strconv.Itoa(i) }

func (a sdkAnswer) tool(i int) string {
	if a.tools == nil {
		return "weather"
	}
	return a.tools[i]
}

func quoted(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func sdkUsage(n int) string {
	return fmt.Sprintf(`{"prompt_tokens":3,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":null}`, 3+n, n)
}

func sdkLogprob(i int) string {
	return fmt.Sprintf(`{"token":"t%d","logprob":-0.%d,"bytes":[116],"top_logprobs":[]}`, i, i%10)
}

func (a sdkAnswer) whole(w http.ResponseWriter, ids, logprobs bool) {
	n := len(a.tokens())
	message := `{"role":"assistant","content":` + quoted(a.text) + `,"refusal":null`
	if a.text == "" {
		message = `{"role":"assistant","content":null`
	}
	if a.reasoning != "" {
		message += `,"reasoning_content":` + quoted(a.reasoning)
	}
	if len(a.calls) > 0 {
		var calls []string
		for i, args := range a.calls {
			calls = append(calls, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":%s}}`, a.id(i), a.tool(i), quoted(args)))
		}
		message += `,"tool_calls":[` + strings.Join(calls, ",") + `]`
	}
	choice, top := "", ""
	if ids {
		var list []int32
		for i := range n {
			list = append(list, int32(100+i))
		}
		choice, top = `,"token_ids":`+asJSON(list), `,"prompt_token_ids":[1,2,3]`
	}
	if logprobs {
		var list []string
		for i := range n {
			list = append(list, sdkLogprob(i))
		}
		choice += `,"logprobs":{"content":[` + strings.Join(list, ",") + `]}`
	} else {
		choice += `,"logprobs":null`
	}
	sdkJSON(w, `{"id":"chatcmpl-`+a.name+`","object":"chat.completion","created":1764000000,"model":"policy","choices":[{"index":0,"message":`+
		message+`},"finish_reason":"`+a.finish+`"`+choice+`}],"usage":`+sdkUsage(n)+`,"service_tier":null`+top+`}`)
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// stream writes the answer as events. A cut stream ends without its last events and without a proper end.
func (a sdkAnswer) stream(w http.ResponseWriter, usage, ids, logprobs, cut bool) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	var out strings.Builder
	event := func(choices, more string) {
		fmt.Fprintf(&out, "data: {\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"policy\",\"choices\":[%s]%s}\n\n",
			a.name, choices, more)
	}
	first := ""
	if ids {
		first = `,"prompt_token_ids":[1,2,3]`
	}
	event(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`, first)
	tokens := a.tokens()
	for i, delta := range tokens {
		if cut && i == len(tokens)/2 {
			break
		}
		choice := `{"index":0,"delta":` + delta + `,"finish_reason":null`
		if i == len(tokens)-1 {
			choice = `{"index":0,"delta":` + delta + `,"finish_reason":"` + a.finish + `"`
		}
		if ids {
			choice += fmt.Sprintf(`,"token_ids":[%d]`, 100+i)
		}
		if logprobs {
			choice += `,"logprobs":{"content":[` + sdkLogprob(i) + `]}`
		} else {
			choice += `,"logprobs":null`
		}
		event(choice+`}`, "")
	}
	if !cut {
		if usage {
			event("", `,"usage":`+sdkUsage(len(tokens)))
		}
		out.WriteString("data: [DONE]\n\n")
	}
	text, rng, flush := out.String(), rand.New(rand.NewPCG(a.seed, uint64(len(a.name)))), http.NewResponseController(w)
	for text != "" {
		n := min(1+rng.IntN([]int{4, 1 + len(text)/20}[rng.IntN(2)]), len(text))
		_, _ = w.Write([]byte(text[:n]))
		_ = flush.Flush()
		text = text[n:]
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
}

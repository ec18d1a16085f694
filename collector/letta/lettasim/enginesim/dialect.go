package enginesim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A Dialect is what an engine's /v1/chat/completions can return besides the OpenAI API, and how the
// engine is asked for it. The file dialect.go lists the public sources of
// the members' names.
type Dialect int

// The dialects. The zero value is DialectVLLM.
//
// Each SGLang dialect refuses return_token_ids, return_prompt_token_ids and return_meta_info in a
// streamed request with status 400. Its answer to an unstreamed request contains the prompt ids and
// the sampled ids per choice.
const (
	// DialectVLLM returns ids in streams too. See vLLM's pull request 22587 and
	// vllm/entrypoints/openai/chat_completion/{protocol,serving}.py at 002032ee and 006c49d4.
	DialectVLLM Dialect = iota
	// DialectSGLang also returns ids in the member sglext, in streams too, if the request asks for
	// them in a header or in the body (SGLang's pull request 34488). The unstreamed sampled ids are
	// in choices[].response_token_ids (pull request 35225).
	DialectSGLang
	// DialectSGLangPlain is DialectSGLang without sglext, such as version 0.5.20.
	DialectSGLangPlain
	// DialectSGLangFirst is the first version with return_token_ids, 0.5.18 (pull request 30917). The
	// sampled ids are in choices[].token_ids.
	DialectSGLangFirst
	// DialectNone returns no ids and ignores every request for them.
	DialectNone
)

var dialectNames = [...]string{"vllm", "sglang", "sglang-plain", "sglang-0.5.18", "none"}

// String returns the name of the dialect, such as "sglang-plain".
func (d Dialect) String() string { return dialectNames[d] }

// Dialects returns the names of all dialects.
func Dialects() []string { return slices.Clone(dialectNames[:]) }

// ParseDialect returns the dialect with the given name.
func ParseDialect(name string) (Dialect, error) {
	if i := slices.Index(dialectNames[:], name); i >= 0 {
		return Dialect(i), nil
	}
	return 0, fmt.Errorf("unknown dialect %q (want one of %s)", name, strings.Join(dialectNames[:], ", "))
}

// sglang reports whether the dialect belongs to SGLang.
func (d Dialect) sglang() bool {
	return d == DialectSGLang || d == DialectSGLangPlain || d == DialectSGLangFirst
}

// owner returns the owner of the model in the list of models.
func (d Dialect) owner() string {
	if d == DialectVLLM {
		return "vllm"
	}
	return "sglang"
}

// The headers with which SGLang is asked for ids. Only the value 1 counts (SGLang's
// python/sglang/srt/entrypoints/openai/serving_chat.py, _convert_to_internal_request).
const (
	inputIDsHeader  = "x-sglext-return-input-ids"
	outputIDsHeader = "x-sglext-return-output-ids"
)

// An asking says which ids a request asks for.
type asking struct {
	prompt, output       bool // vLLM's return_token_ids; in SGLang per choice
	meta                 bool // SGLang's return_meta_info
	extInput, extOutput  bool // in sglext
	tokenIDText, logprob bool // logprobs, with token_id:N instead of text
}

// ids returns what the dialect returns for the request, or the message of a refusal (status 400).
func (d Dialect) ids(body *chatRequest, header http.Header) (a asking, refusal string) {
	a.logprob = body.Logprobs
	switch {
	case d == DialectVLLM:
		a.prompt, a.output, a.tokenIDText = body.TokenIDs, body.TokenIDs, body.TokensAsIDs
	case d.sglang():
		for _, flag := range []struct {
			name string
			set  bool
		}{{"return_prompt_token_ids", body.PromptIDs}, {"return_token_ids", body.TokenIDs}, {"return_meta_info", body.MetaInfo}} {
			if flag.set && body.Stream {
				return a, fmt.Sprintf("%s is not supported with streaming on /v1/chat/completions. "+
					"Please set stream=false when using %[1]s=true.", flag.name)
			}
		}
		a.prompt, a.output, a.meta = body.PromptIDs || body.TokenIDs, body.TokenIDs, body.MetaInfo
		if d == DialectSGLang {
			a.extInput = body.ExtInput || header.Get(inputIDsHeader) == "1"
			a.extOutput = body.ExtOutput || header.Get(outputIDsHeader) == "1"
		}
	}
	return a, ""
}

// outputName returns the member of an unstreamed choice that contains the sampled ids.
func (d Dialect) outputName() string {
	if d == DialectSGLang || d == DialectSGLangPlain {
		return "response_token_ids"
	}
	return "token_ids"
}

// reasoningName returns the member of a message that contains the reasoning. vLLM renamed
// reasoning_content (pull request 27752) and removed the old name (33402).
func (d Dialect) reasoningName() string {
	if d.sglang() {
		return "reasoning_content"
	}
	return "reasoning"
}

// problem returns the body of an error. SGLang's errors in chat completions have no member "error"
// (create_error_response in SGLang's serving_base.py at c5695a4b).
func (d Dialect) problem(status int, message string) map[string]any {
	kind := strings.ReplaceAll(http.StatusText(status), " ", "")
	if status < 500 && status != http.StatusTooManyRequests {
		kind += "Error"
	}
	detail := map[string]any{"message": message, "type": kind, "param": nil, "code": status}
	if d.sglang() {
		detail["object"] = "error"
		return detail
	}
	return map[string]any{"error": detail}
}

// tooLong returns the engine's message for a prompt that does not fit the context. The wording is
// what harnesses recognize: vLLM's vllm/renderers/params.py and SGLang's
// python/sglang/srt/managers/tokenizer_manager.py.
func (d Dialect) tooLong(prompt, limit int, output int64) string {
	if d.sglang() {
		return fmt.Sprintf("The input (%d tokens) is longer than the model's context length (%d tokens).", prompt, limit)
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains "+
		"at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the input prompt or the number of "+
		"requested output tokens.", limit, output, prompt, int64(prompt)+output)
}

// joinParts joins the text parts of a message's content for a template that expects a string. vLLM
// separates them with a newline (vllm/entrypoints/chat_utils.py), SGLang with a space
// (python/sglang/srt/parser/jinja_template_utils.py).
func (d Dialect) joinParts(parts []string) string {
	if d.sglang() {
		return strings.Join(parts, " ")
	}
	return strings.Join(parts, "\n")
}

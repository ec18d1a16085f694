package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
)

// statesOverflow reports whether an error of an engine states that a call exceeds the context length.
// OpenAI's API has a code for it, vLLM and SGLang only sentences. Other errors quote the request, so
// only the start of the message counts.
func statesOverflow(body []byte) bool {
	type fault struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"` // a string or the status
	}
	var e struct {
		fault
		Error fault `json:"error"`
	}
	_ = json.Unmarshal(body, &e) // after an error, the fields that were read count
	states := func(f fault) bool {
		return string(f.Code) == `"context_length_exceeded"` || overflowMessage.MatchString(f.Message)
	}
	return states(e.fault) || states(e.Error)
}

// overflowMessage matches the start of the messages of vLLM (the first four, of several versions) and
// of SGLang.
var overflowMessage = regexp.MustCompile(`(?i)^(` + strings.Join([]string{
	`('\w+'( or '\w+')? is too large: -?\d+\. )?This model's maximum context length is \d`,
	`You passed \d+ input (tokens|characters)( and requested \d+ output tokens)?\. However, the model's context length is `,
	`The (decoder |encoder )?prompt \((total )?length \d+\) is longer than the maximum model length `,
	`The engine prompt length \d+ exceeds the max_model_len `,
	`The input \(\d+ tokens\) is longer than the model's context length `,
	`Requested token count exceeds the model's maximum context length `,
	`Input length \(\d+( tokens)?\) exceeds (the|model's) maximum (allowed|context) length `,
}, "|") + `)`)

// peek returns the first 64 KiB of the body of an answer. They can be read again.
func peek(res *http.Response) []byte {
	head, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // the next read returns the error again
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
	return head
}

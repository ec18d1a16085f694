package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
)

// An sdkSGLang is an sdkEngine that returns ids as SGLang does. With ext, it returns them in sglext if
// headers ask for them, in streams too. Otherwise it has ids for whole answers only.
type sdkSGLang struct {
	sdkEngine
	ext bool
}

func (e sdkSGLang) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked map[string]any
	_ = json.Unmarshal(body, &asked) // the sdkEngine refuses a body that is not JSON
	ids, streamed := asked["return_token_ids"] == true, asked["stream"] == true
	if ids && streamed {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"object":"error","message":"return_token_ids is not supported for streams","code":400}`))
		return
	}
	ext := e.ext && r.Header.Get("X-Sglext-Return-Input-Ids") == "1" && r.Header.Get("X-Sglext-Return-Output-Ids") == "1"
	delete(asked, "return_token_ids")
	body, _ = json.Marshal(asked)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if r.Method == http.MethodGet || !ids && !ext {
		e.sdkEngine.ServeHTTP(w, r)
		return
	}
	kept := httptest.NewRecorder()
	defer func() {
		text := kept.Body.String()
		if kept.Code == http.StatusOK {
			text = e.addIDs(text, asked, streamed, ids, ext)
		}
		maps.Copy(w.Header(), kept.Header())
		w.WriteHeader(kept.Code)
		_, _ = w.Write([]byte(text))
		if cut := recover(); cut != nil {
			_ = http.NewResponseController(w).Flush()
			panic(cut)
		}
	}()
	e.sdkEngine.ServeHTTP(kept, r)
}

// addIDs adds ids to an answer.
func (e sdkSGLang) addIDs(text string, asked map[string]any, streamed, ids, ext bool) string {
	messages, _ := asked["messages"].([]any)
	last, _ := messages[len(messages)-1].(map[string]any)
	a, _ := e.answer(fmt.Sprint(last["content"]))
	var sampled []int32
	for i := range a.tokens() {
		sampled = append(sampled, int32(100+i))
	}
	inExt := `"sglext":{"input_ids":[1,2,3],"output_ids":[` + asJSON(sampled) + `]}`
	switch {
	case streamed:
		end := strings.Index(text, `"choices":[]`) // the event with the usage
		if end < 0 {
			end = strings.Index(text, "data: [DONE]")
		} else {
			end = strings.LastIndex(text[:end], "data: ")
		}
		if end < 0 {
			return text // cut
		}
		event := "data: {\"id\":\"chatcmpl-" + a.name + "\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,\"model\":\"policy\",\"choices\":[]," + inExt + "}\n\n"
		return text[:end] + event + text[end:]
	case ext && !ids:
		return strings.TrimSuffix(text, "}") + "," + inExt + "}"
	default:
		at := strings.LastIndex(text, `}],"usage":`)
		return text[:at] + `,"prompt_token_ids":[1,2,3],"response_token_ids":` + asJSON(sampled) + text[at:]
	}
}

package chat_test

import (
	"testing"

	"github.com/rollout-rl/rollout/tokenize/chat"
)

// Values are equal if their JSON is, including key order, whatever the notation of numbers.
func TestEqual(t *testing.T) {
	t.Parallel()
	const doc = `{"name":"a\u00e9","n":[1,2.5,null,true,99999999999999999999],"o":{}}`
	for other, want := range map[string]bool{
		`{"name": "aé", "n": [1, 25e-1, null, true, 99999999999999999999], "o": {}}`: true,
		`{"n":[1,2.5,null,true,99999999999999999999],"name":"aé","o":{}}`:            false,
		`{"name":"aé","n":[1.0,2.5,null,true,99999999999999999999],"o":{}}`:          false,
		`{"name":"aé","n":[1,2.5,null,1,99999999999999999999],"o":{}}`:               false,
		`{"name":"aé","n":[1,2.5,null,true,99999999999999999998],"o":{}}`:            false,
		`{"name":"aé","n":[1,2.5,null,true],"o":{}}`:                                 false,
		`{"name":"aé","n":[1,2.5,null,true,99999999999999999999],"o":{"p":1}}`:       false,
		`{"name":"ae","n":[1,2.5,null,true,99999999999999999999],"o":{}}`:            false,
		`[]`: false,
	} {
		a := fromJSON(t, []byte(doc))
		b := fromJSON(t, []byte(other))
		if a.Equal(b) != want || b.Equal(a) != want || !b.Equal(b) {
			t.Errorf("%s: equal %v, want %v", other, !want, want)
		}
	}
	if (chat.Value{}).Equal(chat.NoneValue()) || !(chat.Value{}).Equal(chat.Value{}) {
		t.Error("undefined is itself only")
	}
}

package session

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
)

// A Key opens one session. It is part of the session's URL and works as an API key. It is a secret:
// never log it and never write it to a file.
type Key string

// KeyPrefix begins every Key, so that a key is never mistaken for the API key of another service.
const KeyPrefix = "rk-"

// KeyPattern finds each Key in a text. Keys contain only upper-case letters and digits after their
// prefix, so a key is found even if other text follows without a space, as in JSON or in a URL.
var KeyPattern = regexp.MustCompile(KeyPrefix + `[A-Z2-7]{26}`)

// NewKey returns a random Key, such as rk-4X2M6PJC5VZQTDRY7HNE3AGKWB.
func NewKey() Key { return Key(KeyPrefix + rand.Text()) }

// ID returns the id of the session that the key opens. Unlike the key, the id is not a secret.
func (k Key) ID() string {
	sum := sha256.Sum256([]byte("rollout session 1\x00" + string(k)))
	return hex.EncodeToString(sum[:16])
}

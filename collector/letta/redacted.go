package letta

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Redacted returns the operation and its failure without text from the server.
func (e *APIError) Redacted() string {
	if e.Status != 0 {
		text := http.StatusText(e.Status)
		if text != "" {
			text = " " + text
		}
		return e.Op + ": " + strconv.Itoa(e.Status) + text
	}
	if errors.Is(e.Err, ErrConnection) || errors.Is(e.Err, ErrIdle) || errors.Is(e.Err, ErrTimeout) {
		return e.Op + ": " + e.Err.Error() // there was no answer, so the error contains no text from the server
	}
	return e.Op + ": failed"
}

// withoutParameters removes the user, the query and the fragment of an address, because they can be
// secret.
func withoutParameters(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an invalid URL"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// maxDetailBytes limits the length of the server's text in an error.
const maxDetailBytes = 300

func oneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return r == ' ' || r < 0x20 || r == 0x7f
	}), " ")
	if len(s) <= maxDetailBytes {
		return s
	}
	s = s[:maxDetailBytes-len("…")]
	return strings.ToValidUTF8(s, "") + "…"
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

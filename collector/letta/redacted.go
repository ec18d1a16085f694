package letta

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Redacted returns what was tried and what came of it, without a text of the server.
func (e *APIError) Redacted() string {
	if e.Status != 0 {
		text := http.StatusText(e.Status)
		if text != "" {
			text = " " + text
		}
		return e.Op + ": " + strconv.Itoa(e.Status) + text
	}
	if errors.Is(e.Err, ErrConnection) || errors.Is(e.Err, ErrIdle) || errors.Is(e.Err, ErrTimeout) {
		return e.Op + ": " + e.Err.Error() // without an answer there is nothing that it could quote
	}
	return e.Op + ": failed"
}

// withoutParameters leaves out of an address what may be a secret of its sender: user,
// query and fragment.
func withoutParameters(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that is not a URL"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}

// maxDetailBytes bounds how much of a server's text an error carries: enough to understand
// it, small beside a row.
const maxDetailBytes = 300

// oneLine makes a short printable line of a text.
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

package letta

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A Secret is a string that is never printed. Only the client that sends it uses its value.
type Secret string

const hidden = "***"

// String returns *** for a nonempty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString returns the same text as String.
func (s Secret) GoString() string { return s.String() }

// Format prints the text of String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText returns the same text as String. So encoding/json does not reveal the secret either.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns the text of String as a log value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// A scrubber removes secrets from external text. It is sorted by length, the longest secret first.
type scrubber []string

// minHeaderSecret is the minimum length of a header value that counts as a secret. Shorter values
// are usually names and numbers, and removing them would damage other text.
const minHeaderSecret = 8

// clientSecrets returns the password and the header values.
func clientSecrets(cfg *ClientConfig) scrubber {
	all := []string{string(cfg.Password)}
	add := func(value string) {
		if len(value) >= minHeaderSecret {
			all = append(all, value)
		}
	}
	for _, values := range cfg.Headers {
		for _, v := range values {
			add(v)
			if _, token, ok := strings.Cut(v, " "); ok { // the part after Bearer or Basic
				add(token)
			}
		}
	}
	return scrubber(nil).withSecrets(all)
}

// bodySecrets returns the secrets of the agent's tools in the body of a create request. The
// server's errors can quote these secrets.
func bodySecrets(body json.RawMessage) []string {
	var b struct {
		Secrets     map[string]string `json:"secrets"`
		Environment map[string]string `json:"tool_exec_environment_variables"`
	}
	_ = json.Unmarshal(body, &b) // an invalid body has no secrets
	var all []string
	for _, m := range []map[string]string{b.Secrets, b.Environment} {
		all = slices.AppendSeq(all, maps.Values(m))
	}
	return all
}

// withSecrets adds secrets in plain form and in the encodings of JSON, URLs, HTML and Base64.
func (s scrubber) withSecrets(secrets []string) scrubber {
	s = slices.Clone(s)
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		s = append(s, secret, url.QueryEscape(secret), url.PathEscape(secret))
		html, _ := json.Marshal(secret) // cannot fail
		text, _ := Marshal(secret)
		for _, quoted := range []string{string(html), string(text), strconv.QuoteToASCII(secret)} {
			s = append(s, quoted[1:len(quoted)-1])
		}
		for _, apostrophe := range []string{"&#39;", "&#x27;"} {
			for _, quote := range []string{"&#34;", "&quot;"} {
				s = append(s, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, quote, "'", apostrophe).Replace(secret))
			}
		}
		if len(secret) >= minHeaderSecret {
			s = appendBase64(s, secret)
		}
	}
	slices.SortFunc(s, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(s)
}

// appendBase64 adds the Base64 forms of the secret, one for each alignment. The preceding bytes
// determine the alignment of the secret within a group of characters. The characters at both ends
// depend on the neighboring bytes, so they are omitted.
func appendBase64(s scrubber, secret string) scrubber {
	for shift := range 3 {
		first, last := (8*shift+5)/6, 8*(shift+len(secret))/6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			s = append(s, encoding.EncodeToString(append(make([]byte, shift), secret...))[first:last])
		}
	}
	return s
}

// Redact returns text from the server in a form that is safe to show: one line of at most 300
// bytes, without secrets.
func (c *Client) Redact(text string) string { return oneLine(c.secrets.scrub(text)) }

// RedactAddress is Redact for an address. It also removes the user, the query and the fragment.
func (c *Client) RedactAddress(address string) string { return c.Redact(withoutParameters(address)) }

// Environ returns the environment without the variables that contain a secret of this client.
func (c *Client) Environ(environ []string) []string { return c.secrets.filterEnv(environ) }

func (s scrubber) scrub(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

// filterEnv removes the variables that contain a secret from an environment. Otherwise, a model
// could use a tool to print the environment, and the secret would become part of the data.
func (s scrubber) filterEnv(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		_, value, _ := strings.Cut(variable, "=")
		return slices.ContainsFunc(s, func(secret string) bool {
			return value == secret || len(secret) >= minHeaderSecret && strings.Contains(value, secret)
		})
	})
}

// proxyOf wraps proxy and hides the address of an invalid proxy. Otherwise net/http would print the
// address with its password.
func proxyOf(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r)
		if err != nil {
			return nil, errProxy
		}
		return u, nil
	}
}

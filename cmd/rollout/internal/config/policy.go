package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"

	"github.com/rollout-rl/rollout/collector/letta"
)

// A PolicyVersion is the source of policy versions: the user, a page, or the traces of all calls.
// Traces that are fetched only to prove prompts do not count as a source. The zero value means that
// there is no source.
type PolicyVersion struct {
	// Claimed is true if the user claims that the engines sample with the version Version.
	Claimed bool
	Version int32
	// URL is the URL of the page. If the URL does not contain a secret, its reference is the URL
	// itself.
	URL Secret
	// Traces is true if the trace of each call is read.
	Traces bool
	// Shown is the name that messages use for the page.
	Shown string
}

// ClaimedVersion reports whether text is a number. A number is the user's claim, which applies to
// only one invocation.
func ClaimedVersion(text string) bool {
	_, err := strconv.ParseInt(text, 10, 64)
	return err == nil
}

const versionTraces = "trace"

// parsePolicyVersion parses a number, the word trace, a URL, or a reference to a URL.
func parsePolicyVersion(text string, getenv func(string) string) (v PolicyVersion, err error) {
	switch text {
	case "":
		return v, nil
	case versionTraces:
		return PolicyVersion{Traces: true}, nil
	}
	if ClaimedVersion(text) {
		n, _ := strconv.ParseInt(text, 10, 64)
		if n < 0 || n > math.MaxInt32 {
			return v, fmt.Errorf("must be from 0 to %d, got %s", math.MaxInt32, text)
		}
		return PolicyVersion{Claimed: true, Version: int32(n)}, nil
	}
	v.URL = Secret{letta.Secret(text), text}
	_, _, secret := cutReference(text)
	if secret {
		if v.URL, err = ParseSecret(text, getenv); err != nil {
			return v, err
		}
	}
	u, err := url.Parse(v.URL.Reveal())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		_, noNumber := strconv.ParseFloat(text, 64)
		if near := withScheme(text); near != "" && !secret && noNumber != nil {
			return v, fmt.Errorf("%q does not begin with http:// or https://; did you mean %s?", text, near)
		}
		return v, errors.New("not a policy version (want a whole number ≥ 0, \"trace\", or a URL such as http://127.0.0.1:30000/model_info)") // the text can contain a secret
	case secret:
		v.Shown = u.Scheme + "://" + u.Host
	case u.User != nil || u.RawQuery != "":
		return v, fmt.Errorf("%s://%s: a URL with a user name or a query can contain a secret (use a reference such as ${env:NAME} or ${file:/path})", u.Scheme, u.Host)
	default:
		v.Shown = u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	return v, nil
}

// text returns the value as written in configuration files and in run.json.
func (v PolicyVersion) text() string {
	switch {
	case v.Claimed:
		return strconv.Itoa(int(v.Version))
	case v.Traces:
		return versionTraces
	}
	return v.URL.ref
}

func policySetting(key string, to *PolicyVersion, getenv func(string) string) *Setting {
	return scalar(key, "N|URL|trace", to, func(s string) (PolicyVersion, error) { return parsePolicyVersion(s, getenv) }, func(v PolicyVersion) any { return v.text() })
}

package connect

import (
	"errors"
	"net/url"
	"strings"
)

// EngineURL parses the URL of an engine. It removes a trailing /v1, because the URLs of providers end
// with it.
func EngineURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("not a URL (want one like http://127.0.0.1:30000)") // the URL is not shown, because it can contain a password
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/v1")
	return u, nil
}

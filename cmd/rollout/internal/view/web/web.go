// Package web writes the page of a run: for `rollout view`, and as report.html. The page is one
// self-contained file. It loads no font, image, style or script, and its content security policy
// allows only its own script and style.
//
// The page gets its data in one of two ways:
//
//	live   the data is {"live": true}; the page fetches the rest from the server that sent it
//	file   the data contains the overview and, with --out, samples
//
// src contains the sources of the script and of the style. build.mjs bundles them, with the libraries
// in package.json, into dist. dist is committed, so a build of the program needs no Node. .ci/page.sh
// bundles the sources again and compares the result with dist.
package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for embedding the page
	"encoding/base64"
	"html"
	"io"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

var (
	//go:embed dist/page.js
	script []byte
	//go:embed dist/page.css
	style []byte
)

// Licenses contains the licenses of the libraries in the page.
//
//go:embed dist/LICENSES.txt
var Licenses string

// A Page is the content of a page.
type Page struct {
	Title string
	// Live is true if the server that sends the page answers its requests.
	Live bool
	// Text is shown by a browser without scripts.
	Text string
	// Data writes the data as JSON. In all strings, < must be escaped, as encoding/json does.
	Data func(io.Writer) error
}

// Policy returns the content security policy of a page.
func Policy(live bool) string {
	connect := "'none'"
	if live {
		connect = "'self'"
	}
	return "default-src 'none'; script-src '" + digest(script) + "'; style-src '" + digest(style) + "'; connect-src " + connect + "; base-uri 'none'; form-action 'none'"
}

func digest(of []byte) string {
	sum := sha256.Sum256(of)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Write writes the page. It escapes the title and the text, and makes their invisible characters
// visible. The script does the same with the strings of the data.
func Write(w io.Writer, p Page) error {
	var text bytes.Buffer
	err := safely(&text, func(w io.Writer) error { _, err := io.WriteString(w, p.Text); return err })
	if err != nil {
		return err
	}
	head := []string{
		`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">`,
		`<meta http-equiv="Content-Security-Policy" content="` + html.EscapeString(Policy(p.Live)) + `">`,
		`<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">`,
		`<title>` + html.EscapeString(termsafe.Text(p.Title, 80)) + `</title><style>`, string(style), `</style></head><body><div id="page"></div>`,
		`<noscript><pre>` + html.EscapeString(text.String()) + `</pre></noscript><script type="application/json" id="data">`,
	}
	if _, err := io.WriteString(w, strings.Join(head, "")); err != nil {
		return err
	}
	if err := safely(w, p.Data); err != nil {
		return err
	}
	_, err = io.WriteString(w, `</script><script>`+string(script)+`</script></body></html>`+"\n")
	return err
}

// safely passes a writer to write that escapes invisible characters. Escapes do not change the
// values of JSON.
func safely(w io.Writer, write func(io.Writer) error) error {
	safe := termsafe.NewWriter(w)
	if err := write(safe); err != nil {
		return err
	}
	return safe.Flush()
}

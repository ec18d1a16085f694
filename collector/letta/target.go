package letta

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// A target is the path of a request, which starts with /v1. Only the function at creates targets.
type target struct {
	path string
	err  error // an id is not a valid path segment
}

// The function at replaces each {} in a path with an id. An id can come from a file, the command
// line or a server, so it is escaped to become exactly one path segment. An empty id causes an
// error, because the path would address another resource, for example all agents instead of one
// agent. The request is then not sent.
func at(path string, ids ...string) target {
	for _, id := range ids {
		part, err := segment(id)
		if err != nil {
			return target{path, err}
		}
		path = strings.Replace(path, "{}", part, 1)
	}
	return target{path: path}
}

func segment(id string) (string, error) {
	switch id {
	case "":
		return "", errNoID
	case ".", "..": // special segments that contain no character to escape
		return strings.ReplaceAll(id, ".", "%2E"), nil
	}
	return url.PathEscape(id), nil
}

var errNoID = &classed{ErrRejected, errors.New("empty id")}

// needID returns an error if id is empty. An empty id in a query would match everything.
func needID(op, id string) error {
	if id == "" {
		return fmt.Errorf("%s: %w", op, errNoID)
	}
	return nil
}

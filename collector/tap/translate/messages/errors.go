package messages

import (
	"net/http"
	"strings"

	"github.com/rollout-rl/rollout/collector/tap/translate"
	"github.com/rollout-rl/rollout/tokenize/strictjson"
)

// statusOverloaded is the vendor's status for an overloaded server.
const statusOverloaded = 529

// Error returns the body of an answer that reports an error.
func (Dialect) Error(e *translate.Error) []byte {
	message := e.Message
	if e.Code == translate.CodeOverflow && !strings.HasPrefix(message, overflow) {
		message = overflow + ": " + message
	}
	dst := append([]byte(nil), `{"type":"error","error":{"type":"`...)
	dst = append(append(dst, errorType(e.Status)...), `","message":`...)
	return append(strictjson.AppendText(dst, message), "}}"...)
}

// overflow is the text by which clients recognize a request that exceeds the context length.
const overflow = "prompt is too long"

func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusPaymentRequired:
		return "billing_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, statusOverloaded:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status < http.StatusInternalServerError {
		return "invalid_request_error"
	}
	return "api_error"
}

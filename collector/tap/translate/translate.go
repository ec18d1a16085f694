// Package translate translates the APIs of model vendors into OpenAI's Chat Completions API and back,
// because engines return token ids only for chat completions.
//
//	client ──request──► Dialect.Request ──Call.Chat──► engine
//	client ◄──answer─── Call.Reply ◄──────Answer────── engine
//
// A [Dialect] is one API: package responses for OpenAI's Responses API, and package messages for
// Anthropic's Messages API. Package proxy sends Call.Chat like any other chat completion, records the
// call with the messages of Call.Chat, and passes the answer to Call.Reply. A dialect never sees token
// ids.
//
// # Rules for requests
//
// A dialect has tables of the members of a request. [Rule.Action] states what happens to a member:
//
//	passed      the engine gets the same value under the same name
//	translated  the engine gets the same meaning in another form
//	dropped     the member does not change the prompt or the sampling, so the engine does not get it
//	refused     the member changes the prompt or the sampling, and chat completions cannot express it
//
// A request with a refused member gets an error in the form of its API. So does a request with an
// unknown member, if the table is complete. The tables are also the documentation: README.md is
// generated from them.
//
// # Equal messages
//
// Clients send an earlier answer back as a part of the next request. A dialect translates it into the
// assistant message that the engine sent, with the same texts. The JSON of equal messages is equal in
// all requests, so that package session recognizes them.
package translate

import "encoding/json"

// A Dialect translates the requests of one API. Its methods are safe for concurrent use.
type Dialect interface {
	// Name is the name of the API in records and logs, such as "responses".
	Name() string
	// Request translates the body of a request. It does not keep a reference to body. The error is an
	// [*Error] with status 400.
	Request(body []byte) (*Call, error)
	// Error returns the body of an answer that reports an error.
	Error(e *Error) []byte
	// Tables returns the rules for the members of a request.
	Tables() []Table
}

// A Call is a translated request.
type Call struct {
	// Chat is the body of a chat completion. It never asks for a stream.
	Chat []byte
	// Streamed is true if the client wants a stream of events.
	Streamed bool
	// Reply writes the answer to this request.
	Reply Reply
}

// A Reply writes the answer to one request, either with Whole or as events. Its methods append to dst
// and return the extended buffer. They must not be called concurrently.
type Reply interface {
	// Whole appends the body of an answer that is not a stream.
	Whole(dst []byte, a *Answer) []byte
	// Waiting appends an event that keeps a client waiting. It can be called any number of times before
	// Events or Failed.
	Waiting(dst []byte) []byte
	// Events appends all events of the answer, including the end marker of the stream.
	Events(dst []byte, a *Answer) []byte
	// Failed appends the events that report an error, after the head of a stream has been sent.
	Failed(dst []byte, e *Error) []byte
}

// An Answer is the first choice of a chat completion. Texts are JSON strings with their quotes, in the
// bytes of the engine. A text that is missing or null is nil.
type Answer struct {
	// ID is the engine's id of the answer, without quotes. It is unique in a session and contains only
	// letters, digits, '-' and '_'.
	ID string
	// Model is the name of the model that the client used.
	Model string
	// Created is a Unix time in seconds.
	Created int64

	Reasoning, Content, Refusal json.RawMessage
	Calls                       []ToolCall

	// Finish is the engine's finish reason, such as "stop", "length" or "tool_calls". Matched is the
	// stop string that ended the output, as a JSON string, or nil.
	Finish  string
	Matched json.RawMessage
	// PromptTokens, OutputTokens and Cached are the engine's counts of tokens. An unknown count is 0.
	PromptTokens, OutputTokens, Cached int64
}

// A ToolCall is a call of a tool. All fields are JSON strings. Arguments contains JSON, if the model
// wrote valid JSON.
type ToolCall struct {
	ID, Name, Arguments json.RawMessage
}

// An Error is an error that a client receives.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is a word that programs can test, such as "bad_request" or "context_length_exceeded".
	Code string
	// Message is a sentence for people. It names the member of the request that is wrong, if there is one.
	Message string
}

func (e *Error) Error() string { return e.Message }

// CodeOverflow is the code of an error which states that a request exceeds the context length.
const CodeOverflow = "context_length_exceeded"

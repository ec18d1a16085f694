// Package chat renders conversations with the chat templates that models
// publish: the part of Jinja that they use, with the meaning that Python gives
// it.
package chat

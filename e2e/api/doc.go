// Package api has the end-to-end tests of what programs, people and operators use: the REST API,
// webhooks, MCP, the dashboard, the examples of the documentation and the command line.
package api

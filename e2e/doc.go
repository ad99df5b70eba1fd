// Package e2e has the end-to-end tests. They build the program, start it on a data directory of its
// own, and talk to it as its users do: over SMTP, IMAP, DNS, HTTP and the command line, with mail
// servers, mail clients, resolvers and a browser that others wrote. It does not know package main:
// what a test wants to know of the program, it reads where an operator would.
package e2e

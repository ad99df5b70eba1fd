// Package rig is what the end-to-end tests share. It builds the program once for a package of
// tests, starts and stops it on a data directory of its own, and talks to it as its users do: over
// SMTP, IMAP, DNS, HTTP and the command line. It has fakes of the servers that the program talks
// to, and starts servers that others wrote. It does not know package main, nor what a test proves:
// what a test wants to know of the program, it reads where an operator would.
package rig

// Package archtest has the tests that read the sources of the whole module: who may import whom,
// which rules stand in one place, and which words there must be for what. It has no code of its
// own.
package archtest

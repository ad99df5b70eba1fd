<?php
// What a user of Roundcube does to a mailbox of four messages, by Roundcube's own IMAP library; at the end all is as it was.
// roundcube.php DIRECTORY HOST PORT USER PASSWORD QUOTA
[, $dir, $host, $port, $user, $password, $quota] = $argv;
define('RCUBE_INSTALL_PATH', "$dir/");
define('RCUBE_LOCALIZATION_DIR', "$dir/program/localization/");
error_reporting(E_ALL & ~E_DEPRECATED);
require "$dir/program/lib/Roundcube/bootstrap.php";

function check($ok, $what, $imap = null)
{
    if (!$ok) {
        fwrite(STDERR, "$what: failed" . ($imap ? ": {$imap->error}" : '') . "\n");
        exit(1);
    }
    echo "$what\n";
}

function same($got, $want, $what)
{
    check($got == $want, $what . ($got == $want ? '' : ': ' . json_encode($got) . ', want ' . json_encode($want)));
}

function subjects($imap, $folder, $set = '1:*')
{
    $list = [];
    foreach ($imap->fetchHeaders($folder, $set, true) as $h) {
        $list[] = $h->subject;
    }
    return $list;
}

$imap = new rcube_imap_generic();
check($imap->connect($host, $user, $password, ['port' => (int) $port, 'ssl_mode' => null, 'ident' => ['name' => 'Roundcube'], 'timeout' => 20]), 'connect', $imap);
check(is_array($imap->getNamespace()) && $imap->getHierarchyDelimiter() == '/', 'namespace', $imap);
check($imap->enable('QRESYNC'), 'enable', $imap);
$folders = $imap->listMailboxes('', '*', ['SUBSCRIBED', 'SPECIAL-USE']);
check(isset($folders['INBOX'], $folders['Trash']), 'list', $imap);
check(in_array('\\Sent', $imap->data['LIST']['Sent'] ?? []), 'special use');
check($imap->createFolder('Work &- Fun', ['\\Important']) || $imap->createFolder('Work &- Fun'), 'create', $imap);
check($imap->subscribe('Work &- Fun') && in_array('Work &- Fun', $imap->listSubscribed('', '*')), 'subscribe', $imap);
check($imap->select('INBOX') && $imap->data['EXISTS'] == 4 && $imap->data['HIGHESTMODSEQ'] > 0, 'select', $imap);
same($imap->countMessages('INBOX'), 4, 'count');
same($imap->countUnseen('INBOX'), 4, 'unseen');
same(array_values(subjects($imap, 'INBOX')), ['one', 'two', 'three', 'four'], 'headers');
same($imap->sort('INBOX', 'SUBJECT', 'UNDELETED', true, 'UTF-8')->get(), [4, 1, 3, 2], 'sort');
same($imap->sort('INBOX', 'ARRIVAL', '', true)->get(), [1, 2, 3, 4], 'sort by arrival');
same(count($imap->thread('INBOX', 'REFERENCES', '', true, 'UTF-8')->get()), 4, 'threads');
same($imap->search('INBOX', 'HEADER SUBJECT ' . $imap->escape('thr'), true, ['COUNT', 'ALL'])->get(), [3], 'search');
same($imap->search('INBOX', 'CHARSET UTF-8 OR HEADER SUBJECT ' . $imap->escape('grüße') . ' BODY ' . $imap->escape('Hello two'), true)->get(), [2], 'search in UTF-8');
$structure = $imap->getStructure('INBOX', 1, true);
check(is_array($structure) && strtolower($structure[0]) == 'text', 'structure', $imap);
same(trim($imap->handlePartBody('INBOX', 2, true, '1')), 'Hello two', 'part');
check($imap->flag('INBOX', '1:2', 'FLAGGED') && $imap->flag('INBOX', '1', 'SEEN'), 'flag', $imap);
same($imap->search('INBOX', 'FLAGGED', true)->get(), [1, 2], 'flagged');
same($imap->search('INBOX', 'UNSEEN', true)->count(), 3, 'unseen after a flag');
check($imap->unflag('INBOX', '1:2', 'FLAGGED') && $imap->unflag('INBOX', '1', 'SEEN'), 'unflag', $imap);
$message = "From: ann@example.test\r\nTo: bob@elsewhere.test\r\nSubject: draft\r\n\r\nbody\r\n";
$uid = $imap->append('Drafts', $message, ['SEEN', 'DRAFT']);
check($uid > 0, 'append', $imap);
check($imap->append('Drafts', $message, ['SEEN'], '05-Jan-2026 10:00:00 +0000', true) > 0, 'binary append', $imap);
check($imap->copy('1:2', 'INBOX', 'Work &- Fun'), 'copy', $imap);
same(array_values(subjects($imap, 'Work &- Fun')), ['one', 'two'], 'what was copied');
check($imap->move('1', 'Work &- Fun', 'Trash'), 'move', $imap);
same(array_values(subjects($imap, 'Trash')), ['one'], 'what was moved');
check($imap->flag('Trash', '1:*', 'DELETED') && $imap->expunge('Trash', '1:*'), 'expunge', $imap);
check($imap->clearFolder('Drafts'), 'clear', $imap);
$found = $imap->getQuota('INBOX');
check(is_array($found), 'quota', $imap);
same($found['total'] ?? 0, intval($quota) / 1024, 'the limit');
check(is_array($imap->status('Work &- Fun', ['UIDNEXT', 'UNSEEN', 'HIGHESTMODSEQ'])), 'status', $imap);
check($imap->renameFolder('Work &- Fun', 'Work/Other &AOQ-'), 'rename', $imap);
check($imap->select('INBOX', [$imap->data['UIDVALIDITY'] ?? 1, 1]), 'select with QRESYNC', $imap);
check($imap->unsubscribe('Work &- Fun') && $imap->deleteFolder('Work/Other &AOQ-'), 'delete', $imap);
$imap->closeConnection();

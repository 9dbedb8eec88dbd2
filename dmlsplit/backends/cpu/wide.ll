; Copies wide rows on several threads that share a board: 0 whether it has an owner, 1 the owner's
; tasks, 2 how many are left, 3 the first task that a helper has taken, 4 how many helpers are at work. The owner takes the
; first task that is left, a helper the last, so that each finds the same rows in its cache each time.
; A task: source, destination, bytes, rows, bytes from row to row in the source and the destination.
; wide.py puts in the addresses of memmove and sched_yield, and the intrinsic function for a pause.

define internal void @copy(ptr %tasks, i64 %number) {
start:
  %at = getelementptr [6 x i64], ptr %tasks, i64 %number
  %task = load <6 x i64>, ptr %at, align 8
  %src = extractelement <6 x i64> %task, i64 0
  %dst = extractelement <6 x i64> %task, i64 1
  %bytes = extractelement <6 x i64> %task, i64 2
  %rows = extractelement <6 x i64> %task, i64 3
  %pitch = extractelement <6 x i64> %task, i64 4
  %width = extractelement <6 x i64> %task, i64 5
  br label %row
row:
  %from = phi i64 [%src, %start], [%from.next, %row]
  %to = phi i64 [%dst, %start], [%to.next, %row]
  %remaining = phi i64 [%rows, %start], [%remaining.next, %row]
  call i64 inttoptr (i64 MEMMOVE to ptr)(i64 %to, i64 %from, i64 %bytes)
  %from.next = add i64 %from, %pitch
  %to.next = add i64 %to, %width
  %remaining.next = sub i64 %remaining, 1
  %is.last = icmp eq i64 %remaining.next, 0
  br i1 %is.last, label %end, label %row
end:
  ret void
}

; A helper. It returns when it has looked at the board `turns` times and no task was left.
define void @serve(ptr %board, i64 %turns) {
start:
  %tasks.at = getelementptr i64, ptr %board, i64 1
  %left = getelementptr i64, ptr %board, i64 2
  %back = getelementptr i64, ptr %board, i64 3
  %inside = getelementptr i64, ptr %board, i64 4
  br label %listen
listen:
  %turn = phi i64 [%turns, %start], [%turn.next, %rest], [%turns, %leave]
  %seen = load atomic i64, ptr %left acquire, align 8
  %is.work = icmp sgt i64 %seen, 0
  br i1 %is.work, label %enter, label %rest
rest:
  call void PAUSE
  %turn.next = sub i64 %turn, 1
  %is.over = icmp eq i64 %turn.next, 0
  br i1 %is.over, label %end, label %listen
enter: ; from here on, the owner waits for this helper
  atomicrmw add ptr %inside, i64 1 seq_cst
  br label %claim
claim:
  %was.left = atomicrmw sub ptr %left, i64 1 seq_cst
  %is.mine = icmp sgt i64 %was.left, 0
  br i1 %is.mine, label %pass, label %leave
pass:
  %passed = atomicrmw sub ptr %back, i64 1 seq_cst
  %number = sub i64 %passed, 1
  %tasks = load ptr, ptr %tasks.at
  call void @copy(ptr %tasks, i64 %number)
  br label %claim
leave:
  atomicrmw sub ptr %inside, i64 1 seq_cst
  br label %listen
end:
  ret void
}

; A caller. If the board has an owner, it works alone, with a board that no helper sees. If it has
; `woken` helpers, it lets them have its processor once, because one that wakes there can leave it only
; when it runs. It waits for helpers for `turns`, and then lets them have its processor again.
define void @run(ptr %shared, i64 %turns, ptr %tasks, i64 %count, i64 %woken) {
start:
  %alone = alloca [5 x i64], align 8
  store [5 x i64] zeroinitializer, ptr %alone
  %asked = cmpxchg ptr %shared, i64 0, i64 1 seq_cst seq_cst
  %is.owner = extractvalue {i64, i1} %asked, 1
  %board = select i1 %is.owner, ptr %shared, ptr %alone
  %tasks.at = getelementptr i64, ptr %board, i64 1
  %left = getelementptr i64, ptr %board, i64 2
  %back = getelementptr i64, ptr %board, i64 3
  %inside = getelementptr i64, ptr %board, i64 4
  store ptr %tasks, ptr %tasks.at
  store i64 %count, ptr %back
  store atomic i64 %count, ptr %left seq_cst, align 8
  %is.awake = icmp eq i64 %woken, 0
  br i1 %is.awake, label %claim, label %make.way
make.way:
  call i32 inttoptr (i64 YIELD to ptr)()
  br label %claim
claim:
  %number = phi i64 [0, %start], [0, %make.way], [%number.next, %pass]
  %was.left = atomicrmw sub ptr %left, i64 1 seq_cst
  %is.mine = icmp sgt i64 %was.left, 0
  br i1 %is.mine, label %pass, label %wait
pass:
  call void @copy(ptr %tasks, i64 %number)
  %number.next = add i64 %number, 1
  br label %claim
wait:
  %turn = phi i64 [0, %claim], [%turn.next, %rest], [%turn, %yield]
  %helpers = load atomic i64, ptr %inside seq_cst, align 8
  %is.done = icmp eq i64 %helpers, 0
  br i1 %is.done, label %end, label %again
again:
  %is.long = icmp eq i64 %turn, %turns
  br i1 %is.long, label %yield, label %rest
rest:
  call void PAUSE
  %turn.next = add i64 %turn, 1
  br label %wait
yield:
  call i32 inttoptr (i64 YIELD to ptr)()
  br label %wait
end:
  store atomic i64 0, ptr %board seq_cst, align 8
  ret void
}

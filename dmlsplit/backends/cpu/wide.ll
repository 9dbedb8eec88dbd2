; Copies wide rows on several threads that share a board: 0 whether it has an owner, 1 the owner's
; tasks, 2 how many are left, 3 the first task that a helper has taken, 4 how many helpers are at work. The owner takes the
; first task that is left, a helper the last, so that each finds the same rows in its cache each time.
; A task: source, destination, bytes, rows, bytes from row to row in the source and the destination, and
; whether it writes past the cache: four rows at once, because one alone waits for memory more often.
; wide.py puts in the addresses of memmove and sched_yield, and the intrinsics for a pause and a fence.

define internal void @copy(ptr %tasks, i64 %number) "min-legal-vector-width"="512" {
start:
  %place = getelementptr [7 x i64], ptr %tasks, i64 %number
  %task = load <7 x i64>, ptr %place, align 8
  %src = extractelement <7 x i64> %task, i64 0
  %dst = extractelement <7 x i64> %task, i64 1
  %bytes = extractelement <7 x i64> %task, i64 2
  %rows = extractelement <7 x i64> %task, i64 3
  %pitch = extractelement <7 x i64> %task, i64 4
  %width = extractelement <7 x i64> %task, i64 5
  %past = extractelement <7 x i64> %task, i64 6
  switch i64 %past, label %group [i64 0, label %row]
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
group:
  %first = phi i64 [0, %start], [%last, %group.end]
  %first.next = add i64 %first, 4
  %last = call i64 @llvm.umin.i64(i64 %first.next, i64 %rows)
  br label %line
line: ; the one `at` bytes after the first cache line of each row's destination
  %at = phi i64 [0, %group], [%at.next, %line.end]
  br label %piece
piece:
  %index = phi i64 [%first, %line], [%index.next, %piece.end]
  %in.skip = mul i64 %index, %pitch
  %in = add i64 %src, %in.skip
  %out.skip = mul i64 %index, %width
  %out = add i64 %dst, %out.skip
  %out.end = add i64 %out, %bytes
  %out.line = and i64 %out, -64
  %low = add i64 %out.line, %at
  %high = add i64 %low, 64
  %begin = call i64 @llvm.umax.i64(i64 %low, i64 %out)
  %stop = call i64 @llvm.umin.i64(i64 %high, i64 %out.end)
  %size = call i64 @llvm.usub.sat.i64(i64 %stop, i64 %begin)
  %skip = sub i64 %begin, %out
  %piece.in = add i64 %in, %skip
  %is.whole = icmp eq i64 %size, 64
  br i1 %is.whole, label %whole, label %part
whole:
  %whole.in = inttoptr i64 %piece.in to ptr
  %whole.out = inttoptr i64 %begin to ptr
  %words = load <8 x i64>, ptr %whole.in, align 1
  store <8 x i64> %words, ptr %whole.out, align 64, !nontemporal !{i32 1}
  br label %piece.end
part:
  call i64 inttoptr (i64 MEMMOVE to ptr)(i64 %begin, i64 %piece.in, i64 %size)
  br label %piece.end
piece.end:
  %index.next = add i64 %index, 1
  %is.last.piece = icmp eq i64 %index.next, %last
  br i1 %is.last.piece, label %line.end, label %piece
line.end: ; a row touches at most 63 bytes more than it has
  %at.next = add i64 %at, 64
  %has.line = icmp slt i64 %at, %bytes
  br i1 %has.line, label %line, label %group.end
group.end:
  %has.group = icmp ult i64 %last, %rows
  br i1 %has.group, label %group, label %end
end: ; what was written past the cache must be visible before the task counts as done
  call void FENCE
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

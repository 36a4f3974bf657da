(* bind_lwt.ml: what a bind costs with Lwt: bench_bind_lwt WHAT CASE OPS. See ../bench_bind.c, which
   says what is measured and why that is fair; ../bind_weft.c is the same with weft.

   Defaults throughout: the engine that Lwt_main chooses, OCaml's minor heap. The results of a pending
   batch go to a fresh array, which is young as a rule, so that storing them costs next to nothing. *)

(* The harness's clock, without boxing. (The first name is for bytecode, which isn't built.) *)
external now : unit -> (int[@untagged]) = "bench_now" "bench_now" [@@noalloc]

let chain = 1000 (* resolved: binds between two looks at the result *)
let batch = 256 (* pending *)
let expect true_enough what = if not true_enough then failwith what

(* A closure made once, which the compiler knows nothing about. *)
let add_one = Sys.opaque_identity (fun value -> Lwt.return (value + 1))

let look result =
  match Lwt.state result with
  | Lwt.Return value -> value
  | Lwt.Fail _ | Lwt.Sleep -> failwith "a bind has no result"

(* ---- what is measured ---- *)

let resolved_chain length =
  let promise = ref (Lwt.return 0) in
  for _ = 1 to length do
    promise := Lwt.bind !promise add_one
  done;
  !promise

let resolved ops =
  for _ = 1 to ops / chain do
    expect (look (resolved_chain chain) = chain) "a bind is missing"
  done

let sources count = Array.init count (fun _ -> Lwt.wait ())

let bind_all sources results =
  for i = 0 to Array.length sources - 1 do
    results.(i) <- Lwt.bind (fst sources.(i)) add_one
  done

let resolve_all sources =
  for i = 0 to Array.length sources - 1 do
    Lwt.wakeup (snd sources.(i)) i
  done

let pending_batch () =
  let sources = sources batch and results = Array.make batch (Lwt.return 0) and sum = ref 0 in
  let began = now () in
  bind_all sources results;
  resolve_all sources;
  for i = 0 to batch - 1 do
    sum := !sum + look results.(i) - i
  done;
  let ended = now () in
  expect (!sum = batch) "a bind is missing";
  ended - began

let pending ops =
  let ns = ref 0 in
  for _ = 1 to (ops + batch - 1) / batch do
    ns := !ns + pending_batch ()
  done;
  !ns

let left = ref 0

let rec pause_next () =
  decr left;
  if !left = 0 then Lwt.return_unit else Lwt.bind (Lwt.pause ()) pause_next

let serial ops =
  left := ops;
  Lwt.bind (Lwt.pause ()) pause_next

(* ---- time ---- *)

let time case ops =
  match case with
  | "resolved" ->
    resolved (ops / 10);
    let began = now () in
    resolved ops;
    now () - began
  | "pending" ->
    ignore (pending (ops / 10));
    pending ops
  | "serial" ->
    Lwt_main.run
      (Lwt.bind (serial (ops / 10)) (fun () ->
           let began = now () in
           Lwt.bind (serial ops) (fun () -> Lwt.return (now () - began))))
  | _ -> failwith "no such case"

(* ---- memory ---- *)

(* Made ready, and the operations: these are counted. *)
let memory case ops =
  match case with
  | "resolved" -> fun () -> ignore (Sys.opaque_identity (resolved_chain ops))
  | "pending" ->
    let sources = sources ops and results = Array.make ops (Lwt.return 0) in
    fun () ->
      bind_all sources results;
      resolve_all sources
  | "serial" -> fun () -> Lwt_main.run (serial ops)
  | _ -> failwith "no such case"

let bytes_of work =
  let before = Gc.allocated_bytes () in
  work ();
  Gc.allocated_bytes () -. before

(* None: this OCaml cannot say. *)
let blocks_of work =
  let count = ref 0 in
  let one (_ : Gc.Memprof.allocation) =
    incr count;
    None
  in
  let tracker = { Gc.Memprof.null_tracker with alloc_minor = one; alloc_major = one } in
  match Gc.Memprof.start ~sampling_rate:1.0 ~callstack_size:0 tracker with
  | exception Failure _ -> None
  | _ ->
    work ();
    Gc.Memprof.stop ();
    Some !count

let print_memory case ops =
  let per_op total = total /. float_of_int ops in
  Printf.printf "%.2f" (per_op (bytes_of (memory case ops)));
  (match blocks_of (memory case ops) with
   | Some blocks -> Printf.printf " %.2f" (per_op (float_of_int blocks))
   | None -> ());
  print_newline ()

let () =
  match Sys.argv with
  | [| _; "time"; case; ops |] ->
    let ops = int_of_string ops in
    Printf.printf "%.4f\n" (float_of_int (time case ops) /. float_of_int ops)
  | [| _; "memory"; case; ops |] -> print_memory case (int_of_string ops)
  | _ ->
    prerr_endline "takes three arguments, WHAT, CASE and OPS; bench_bind runs it";
    exit 1
